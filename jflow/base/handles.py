"""Bases of handles: what a `with` block ends, and what cannot be copied or pickled."""

from __future__ import annotations

from typing import ClassVar, NoReturn, Self, SupportsIndex


class Uncopyable:
    """An object whose copy would not be what it is, such as a session or a variable.

    `copy.copy`, `copy.deepcopy` and `pickle` all ask for `__reduce_ex__`, so one refusal holds for
    the three.
    """

    __slots__ = ()

    _instead_of_copy: ClassVar[str] = "it is of this process; make another one where it is needed"
    """Why, and what to do instead."""

    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied or pickled: {self._instead_of_copy}")


class Closing(Uncopyable):
    """An object that can be used as `with thing as name:`, which ends it after the block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._leave(failed=kind is not None)

    def _leave(self, failed: bool) -> None:
        """Ends it: closes or stops it. `failed` says whether the block raised an exception."""
        raise NotImplementedError
