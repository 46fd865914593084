"""In which order a queue's elements come out again: one class for each order."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Element:
    """One element of a queue.

    Attributes:
      components: its arrays.
      n_bytes: the memory they take.
    """

    __slots__ = ("components", "n_bytes")

    def __init__(self, components: tuple[Array, ...], n_bytes: int) -> None:
        self.components = components
        self.n_bytes = n_bytes


class Elements(ABC):
    """The elements of a queue in the order of its kind."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def put(self, element: Element) -> None:
        """Adds an element."""

    @abstractmethod
    def take(self) -> Element:
        """Removes the next element; there must be one."""

    @abstractmethod
    def put_back(self, elements: Sequence[Element]) -> None:
        """Adds elements that were taken, in that order, as if they had not been."""


class Line(Elements):
    """First in, first out."""

    def __init__(self) -> None:
        self._elements: deque[Element] = deque()

    def __len__(self) -> int:
        return len(self._elements)

    def put(self, element: Element) -> None:
        self._elements.append(element)

    def take(self) -> Element:
        return self._elements.popleft()

    def put_back(self, elements: Sequence[Element]) -> None:
        self._elements.extendleft(reversed(elements))


class Pool(Elements):
    """In the order of chance.

    Args:
      choose: chance; gives one of 0, 1, ..., n - 1 for n.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self._elements: list[Element] = []

    def __len__(self) -> int:
        return len(self._elements)

    def put(self, element: Element) -> None:
        self._elements.append(element)

    def take(self) -> Element:
        elements = self._elements
        index = self._choose(len(elements))
        elements[index], elements[-1] = elements[-1], elements[index]
        return elements.pop()

    def put_back(self, elements: Sequence[Element]) -> None:
        self._elements.extend(elements)


class Heap(Elements):
    """By priority, their first component, the smallest first; equal ones as they came."""

    def __init__(self) -> None:
        self._elements: list[tuple[int, int, Element]] = []
        self._front = self._back = 0  # those put back are numbered downwards

    def __len__(self) -> int:
        return len(self._elements)

    def put(self, element: Element) -> None:
        heapq.heappush(self._elements, (self._priority(element), self._back, element))
        self._back += 1

    def take(self) -> Element:
        return heapq.heappop(self._elements)[2]

    def put_back(self, elements: Sequence[Element]) -> None:
        for element in reversed(elements):
            self._front -= 1
            heapq.heappush(self._elements, (self._priority(element), self._front, element))

    @staticmethod
    def _priority(element: Element) -> int:
        return int(element.components[0])
