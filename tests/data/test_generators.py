"""Generators by name."""

from __future__ import annotations

import pytest

from jflow import errors
from jflow.data import Dataset, register_generator
from tests.data.chains import as_lists


def test_a_name_finds_its_generator_and_its_newest_definition() -> None:
    for factor in (1, 10):

        @register_generator("tests.counting")
        def counting(n, factor=factor):
            yield from range(0, n * factor, factor)

    assert as_lists(Dataset.from_generator("tests.counting", [3])) == [0, 10, 20]


def test_a_name_has_one_meaning() -> None:
    @register_generator("tests.one")
    def one():
        yield 1

    def other():
        yield 2

    with pytest.raises(errors.AlreadyExistsError, match=r"other; choose another name"):
        register_generator("tests.one")(other)
    assert as_lists(Dataset.from_generator("tests.one")) == [1]


def test_an_unknown_name_says_what_to_do() -> None:
    with pytest.raises(errors.NotFoundError, match="register_generator"):
        Dataset.from_generator("tests.unknown")
