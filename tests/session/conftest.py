"""The three backends, opened once for the files that share them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters import BACKENDS, Backend


@pytest.fixture(scope="package", params=list(BACKENDS))
def opened(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with BACKENDS[request.param]() as backend:
        yield backend


@pytest.fixture
def backend(opened: Backend) -> Iterator[Backend]:
    yield opened
    opened.reset("", "problem", "other")
