"""`Uncopyable`: the base of what cannot be copied or pickled, with what to do instead."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex


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
