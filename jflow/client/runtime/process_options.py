"""Options that JAX takes once for a process, before a session can have them."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection

from jflow.base.options import ConfigProto

_LOG = logging.getLogger(__name__)

_VARIABLES = {
    "allow_growth": ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    "per_process_gpu_memory_fraction": ("XLA_PYTHON_CLIENT_MEM_FRACTION", None),
    "visible_device_list": ("CUDA_VISIBLE_DEVICES", None),
}
"""By the name of an option of GPUs: the variable of the environment that does the same, and the
value that it then has; None for that of the option."""

_warned: set[str] = set()


def warn_of_process_options(config: ConfigProto, device_types: Collection[str]) -> None:
    """Warns once of each option that a process with GPUs should have had in its environment.

    Args:
      config: the options.
      device_types: the types of the devices of this process.
    """
    if "GPU" not in device_types:
        return
    for name, (variable, fixed) in _VARIABLES.items():
        value = getattr(config.gpu_options, name)
        if value and variable not in os.environ and name not in _warned:
            _warned.add(name)
            _LOG.warning(
                "ConfigProto.gpu_options.%s has no effect, because JAX has started; set the "
                "environment variable %s=%s before the program starts",
                name,
                variable,
                value if fixed is None else fixed,
            )
