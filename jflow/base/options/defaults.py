"""`SessionDefaults`: the options that a server sends to the sessions on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jflow.base.options.config import ConfigProto
from jflow.base.packing import Record
from jflow.errors import InvalidArgumentError


class SessionDefaults(Record, frozen=True):
    """A server's options for the sessions on it; the attributes are those of `ConfigProto`."""

    what = "options of sessions"

    operation_timeout_in_ms: int = 0
    connect_timeout_in_ms: int = 30_000
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    placement: str = "rules"
    device_filters: tuple[str, ...] = ()
    isolate_session_state: bool = False

    @classmethod
    def of(cls, config: ConfigProto) -> SessionDefaults:
        """Returns the record of a server's options.

        Raises:
          InvalidArgumentError: if the placement is a function, or names one.
        """
        _check_sent(config.placement)
        own_values = {name: getattr(config, name) for name in cls.__struct_fields__}
        return cls(**own_values | {"device_filters": tuple(config.device_filters)})

    def fill(self, config: ConfigProto) -> ConfigProto:
        """Returns a session's options with the server's in place of those left at their defaults.

        Raises:
          InvalidArgumentError: if the server's are invalid.
        """
        _check_sent(self.placement)
        defaults = ConfigProto()
        changes = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if getattr(config, name) == getattr(defaults, name)
        }
        return replace(config, **changes)


def _check_sent(placement: str | Callable[..., Any]) -> None:
    """Raises InvalidArgumentError unless a placement is the name of a strategy.

    A client imports no module because a server says so.
    """
    if not isinstance(placement, str) or ":" in placement:
        raise InvalidArgumentError(
            "the config of a server goes to its clients, so its placement is the name of a "
            f"strategy, such as 'auto', and no function; got {placement!r}"
        )
