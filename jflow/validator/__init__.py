"""The process that validates programs from elsewhere, so that a malformed one crashes only it."""

from jflow.validator.validator import VALIDATOR as VALIDATOR
from jflow.validator.validator import Validator as Validator
