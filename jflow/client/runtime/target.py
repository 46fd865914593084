"""The backend of a target: this process, or a cluster.

The import of gRPC takes as long as that of the rest of jflow, so it is done when a target needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.base.cluster import Target
from jflow.base.deadline import Deadline
from jflow.base.options import ConfigProto
from jflow.client.runtime.backend import Backend
from jflow.client.runtime.local import LocalBackend
from jflow.errors import InvalidArgumentError, NotFoundError

_SCHEME = "grpc://"


def open_backend(target: str, config: ConfigProto) -> Backend:
    """Returns an unconnected backend for a target that `checked_target` has accepted."""
    if not target:
        if config.record:
            raise InvalidArgumentError(
                "ConfigProto.record needs a cluster: steps of this process are not recorded; start "
                "one here by jflow.train.Server or `jflow up`, and give its address as the target"
            )
        return LocalBackend(config)
    from jflow.client.runtime.remote import RemoteBackend  # noqa: PLC0415 - see above

    return RemoteBackend(target, config)


def reset_target(
    target: str, containers: Sequence[str], config: ConfigProto, deadline: Deadline
) -> None:
    """Frees containers on all tasks of a cluster; does nothing for this process."""
    if target:
        from jflow.client.runtime.remote import reset_containers  # noqa: PLC0415 - see above

        reset_containers(target, containers, config, deadline)


def checked_target(target: Any) -> str:
    """Returns the target. Raises TypeError, ValueError or NotFoundError if it is not valid."""
    if not isinstance(target, str):
        raise TypeError(f"target must be a string, got {type(target).__name__}")
    if target and not target.startswith(_SCHEME):
        raise NotFoundError(
            f"No session factory registered for target {target!r}: "
            "use '' for this process or 'grpc://host:port' for a server"
        )
    if target:
        Target.parse(target)
    return target


def checked_config(config: Any) -> ConfigProto:
    """Returns a copy of the options; the default options for None.

    Raises:
      TypeError: if it is anything else, or what was put into its lists has the wrong type.
      InvalidArgumentError: if what was put into its lists is not allowed.
    """
    if config is None:
        return ConfigProto()
    if not isinstance(config, ConfigProto):
        raise TypeError(f"config must be a ConfigProto, got {type(config).__name__}")
    return config.copy()
