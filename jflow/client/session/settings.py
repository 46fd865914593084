"""`SessionSettings`: the options of a session, of which its server may set the missing ones."""

from __future__ import annotations

import threading

from jflow.base.deadline import FOREVER, Deadline
from jflow.base.options import ConfigProto, RunOptions
from jflow.client.runtime.backend import Backend
from jflow.client.runtime.steps import placer_of, strategy_text
from jflow.compiler.placement import Placer


class SessionSettings:
    """The deadlines and the placer that a session's options define.

    Args:
      config: the options that were given.
      backend: completes them by those of its server, if it has one.

    Attributes:
      placer: places the steps of the session; replaced once the options are complete.
    """

    def __init__(self, config: ConfigProto, backend: Backend) -> None:
        self._backend = backend
        self._is_complete = False
        self._lock = threading.Lock()
        self._apply(config)

    def deadline(self, options: RunOptions | None = None) -> Deadline:
        """Returns the deadline of a call that begins now."""
        timeout = self._timeout
        if options is not None:
            timeout = options.timeout_in_ms / 1000 or timeout
        return FOREVER if timeout is None else Deadline(timeout)

    def complete(self, deadline: Deadline | None = None) -> Deadline:
        """Completes the options (the first call connects) and returns the call's deadline.

        Args:
          deadline: the call's own deadline; None for that of a call that begins now.

        Raises as `Backend.complete_options`.
        """
        deadline = self.deadline() if deadline is None else deadline
        if self._is_complete:
            return deadline
        with deadline.holding(self._lock, "waiting for the options of the server"):
            if not self._is_complete:
                config = self._backend.complete_options(self._config, deadline)
                if config != self._config:
                    self._apply(config)
                self._is_complete = True
        return self.deadline() if deadline.timeout is None else deadline

    @property
    def placement_name(self) -> str:
        """The name of the placement strategy that the options ask for."""
        return strategy_text(self._config.placement)

    def _apply(self, config: ConfigProto) -> None:
        self._config = config
        self._timeout = config.operation_timeout_in_ms / 1000 or None
        self.placer: Placer = placer_of(config)
