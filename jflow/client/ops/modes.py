"""TensorFlow's switches between graphs and eager execution, which programs for 1.x call first."""

from __future__ import annotations

from jflow.compiler.graph import owners


def disable_eager_execution() -> None:
    """Does nothing: outside of `jflow.connect` programs build graphs.

    Raises:
      RuntimeError: inside of `jflow.connect`.
    """
    if executing_eagerly():
        raise RuntimeError(
            "inside of jflow.connect variables and queues are eager; leave the block"
        )


def disable_v2_behavior() -> None:
    """Does nothing; see `disable_eager_execution`."""
    disable_eager_execution()


def enable_resource_variables() -> None:
    """Does nothing: a variable is read where the step uses it, as TensorFlow's resources are."""


def disable_resource_variables() -> None:
    """Does nothing; see `enable_resource_variables`."""


def resource_variables_enabled() -> bool:
    """Returns True; see `enable_resource_variables`."""
    return True


def executing_eagerly() -> bool:
    """Whether variables that are made here act at once: inside of `jflow.connect`."""
    return owners.current() is not None
