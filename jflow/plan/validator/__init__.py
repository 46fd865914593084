"""Validation of foreign programs in a separate process, so that a malformed one crashes only it."""

from jflow.plan.validator.validator import VALIDATOR as VALIDATOR
from jflow.plan.validator.validator import Validator as Validator
