"""Learners that train apart, and merge fragments of their model through variables."""

from jflow.training.decoupled.decoupled import Decoupled as Decoupled
from jflow.training.decoupled.learner import Learner as Learner
