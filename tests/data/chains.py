"""Random pipelines of integers, each beside the same pipeline on plain lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import grain
import numpy as np
from hypothesis import strategies as st

from jflow.data import Dataset

Numbers = list[int]


@dataclass(frozen=True)
class Transform:
    """One or two transforms, and what they do to a list (None: its order is not predicted)."""

    name: str
    dataset: Callable[[Dataset], Dataset]
    model: Callable[[Numbers], Numbers] | None

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Chain:
    """A source and transforms; `build` makes a new Dataset each time."""

    source: Transform
    transforms: tuple[Transform, ...]

    def build(self) -> Dataset:
        dataset = self.source.dataset(Dataset.range(0))
        for transform in self.transforms:
            dataset = transform.dataset(dataset)
        return dataset

    def model(self) -> Numbers:
        assert self.source.model is not None
        numbers = self.source.model([])
        for transform in self.transforms:
            assert transform.model is not None
            numbers = transform.model(numbers)
        return numbers


class Again:
    """An iterable that can be iterated again and is not a list."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __iter__(self):
        return iter(range(self._length))


def triple(x):
    return x * 3 % 101


def not_third(x):
    return x % 3 != 0


def few(x):
    """A dataset of zero to three elements."""
    return Dataset.range(int(x), int(x) + int(x) % 4)


def few_modelled(x: int) -> Numbers:
    return list(range(x, x + x % 4))


def interleaved(numbers: Numbers, lanes: int, block: int) -> Numbers:
    """The elements of an interleave: a lane that has ended is filled when it is next again."""
    waiting = [few_modelled(x) for x in numbers]
    cycle_of: list[Numbers | None] = [None] * lanes
    out: Numbers = []
    current = 0
    while waiting or any(lane is not None for lane in cycle_of):
        if cycle_of[current] is None and waiting:
            cycle_of[current] = waiting.pop(0)
        lane = cycle_of[current]
        if lane is not None:
            out += lane[:block]
            # The end of a lane is noticed only by a read that finds no element.
            cycle_of[current] = None if len(lane) < block else lane[block:]
        current = (current + 1) % lanes
    return out


def sources() -> st.SearchStrategy[Transform]:
    def source(kind: str, n: int) -> Transform:
        make = {
            "range": lambda _: Dataset.range(n),
            "slices": lambda _: Dataset.from_tensor_slices(np.arange(n)),
            "iterable": lambda _: Dataset.from_iterable(Again(n)),
            "generator": lambda _: Dataset.from_generator(range, [n]),
            "rows of Grain": lambda _: Dataset.from_iterable(grain.MapDataset.range(n)),
            "stream of Grain": lambda _: Dataset.from_iterable(
                grain.MapDataset.range(n).to_iter_dataset()
            ),
        }[kind]
        return Transform(f"{kind}({n})", make, lambda _: list(range(n)))

    kinds = st.sampled_from(
        ["range", "slices", "iterable", "generator", "rows of Grain", "stream of Grain"]
    )
    return st.builds(source, kinds, st.integers(0, 12))


def modelled_transforms() -> st.SearchStrategy[Transform]:
    small = st.integers(0, 5)
    positive = st.integers(1, 4)
    return st.one_of(
        st.just(Transform("map", lambda d: d.map(triple), lambda xs: [triple(x) for x in xs])),
        positive.map(
            lambda n: Transform(
                f"map on {n}", lambda d: d.map(triple, n), lambda xs: [triple(x) for x in xs]
            )
        ),
        st.just(
            Transform(
                "filter", lambda d: d.filter(not_third), lambda xs: list(filter(not_third, xs))
            )
        ),
        st.just(
            Transform(
                "enumerate",
                lambda d: d.enumerate().map(lambda i, x: 2 * i + x),
                lambda xs: [2 * i + x for i, x in enumerate(xs)],
            )
        ),
        small.map(lambda n: Transform(f"take {n}", lambda d: d.take(n), lambda xs: xs[:n])),
        small.map(lambda n: Transform(f"skip {n}", lambda d: d.skip(n), lambda xs: xs[n:])),
        st.tuples(positive, small)
        .filter(lambda pair: pair[1] < pair[0])
        .map(
            lambda pair: Transform(
                f"shard {pair}", lambda d: d.shard(*pair), lambda xs: xs[pair[1] :: pair[0]]
            )
        ),
        st.integers(0, 3).map(
            lambda n: Transform(f"repeat {n}", lambda d: d.repeat(n), lambda xs: xs * n)
        ),
        small.map(
            lambda n: Transform(
                f"repeat for ever, take {n}",
                lambda d: d.repeat().take(n),
                lambda xs: list(islice(cycle(xs), n)),
            )
        ),
        st.tuples(positive, st.booleans()).map(
            lambda pair: Transform(
                f"batch {pair}, unbatch",
                lambda d: d.batch(*pair).unbatch(),
                lambda xs: xs[: len(xs) - len(xs) % pair[0]] if pair[1] else xs,
            )
        ),
        small.map(
            lambda n: Transform(
                f"concatenate {n}",
                lambda d: d.concatenate(Dataset.range(n)),
                lambda xs: xs + list(range(n)),
            )
        ),
        small.map(
            lambda n: Transform(
                f"zip {n}",
                lambda d: Dataset.zip(d, Dataset.range(n)).map(lambda x, y: x + 2 * y),
                lambda xs: [x + 2 * y for x, y in zip(xs, range(n), strict=False)],
            )
        ),
        st.tuples(positive, st.integers(1, 2)).map(
            lambda pair: Transform(
                f"interleave {pair}",
                lambda d: d.interleave(few, *pair),
                lambda xs: interleaved(xs, *pair),
            )
        ),
        positive.map(lambda n: Transform(f"prefetch {n}", lambda d: d.prefetch(n), lambda xs: xs)),
    )


def shuffles() -> st.SearchStrategy[Transform]:
    return st.tuples(st.integers(1, 5), st.integers(0, 9), st.booleans()).map(
        lambda three: Transform(
            f"shuffle {three}",
            lambda d: d.shuffle(three[0], seed=three[1], reshuffle_each_iteration=three[2]),
            None,
        )
    )


def chains(transforms: st.SearchStrategy[Transform]) -> st.SearchStrategy[Chain]:
    return st.builds(Chain, sources(), st.lists(transforms, max_size=5).map(tuple))


def as_lists(elements: Any) -> list[Any]:
    """Elements as plain numbers and nested lists, to be compared."""
    return [np.asarray(element).tolist() for element in elements]
