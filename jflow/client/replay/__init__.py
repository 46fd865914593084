"""Replay: a recorded run, computed again from its logs."""

from jflow.client.replay.replay import Replay as Replay
from jflow.client.replay.replay import ReplayedStep as ReplayedStep
