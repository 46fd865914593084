"""Base classes of handles: context managers, and objects that cannot be copied or pickled."""

from __future__ import annotations

from typing import ClassVar, NoReturn, Self, SupportsIndex


class Uncopyable:
    """Base of objects that cannot be copied or pickled, such as sessions and variables.

    `copy.copy`, `copy.deepcopy` and `pickle` all ask for `__reduce_ex__`, so one refusal holds for
    the three.
    """

    __slots__ = ()

    _instead_of_copy: ClassVar[str] = "it is of this process; make another one where it is needed"
    """Why the object cannot be copied, and what to do instead."""

    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied or pickled: {self._instead_of_copy}")


class Closing(Uncopyable):
    """Base of context managers that are closed or stopped at the end of their `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._leave(failed=kind is not None)

    def _leave(self, failed: bool) -> None:
        """Closes or stops the object after its block; `failed` if the block raised an exception."""
        raise NotImplementedError
