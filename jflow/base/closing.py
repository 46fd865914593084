"""`Closing`: the base of what a `with` block ends."""

from __future__ import annotations

from typing import Self

from jflow.base.uncopyable import Uncopyable


class Closing(Uncopyable):
    """An object that can be used as `with thing as name:`, which ends it after the block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._leave(failed=kind is not None)

    def _leave(self, failed: bool) -> None:
        """Ends it: closes or stops it. `failed` says whether the block raised an exception."""
        raise NotImplementedError
