"""The three backends, opened once for the whole folder, and files that their tasks may read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.readers.helpers import reading
from tests.clusters import BACKENDS, Backend


@pytest.fixture(scope="package")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory below which servers read."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def directory(root: Path, tmp_path: Path) -> Path:
    """A directory for one test, below the root."""
    own = root / tmp_path.name
    own.mkdir(exist_ok=True)
    return own


@pytest.fixture(scope="package", params=list(BACKENDS))
def opened(request: pytest.FixtureRequest, root: Path) -> Iterator[Backend]:
    with reading(request.param, root) as backend:
        yield backend


@pytest.fixture
def backend(opened: Backend) -> Iterator[Backend]:
    yield opened
    opened.reset("", "other")


@pytest.fixture
def cluster(backend: Backend) -> Backend:
    """A backend on which sessions share state."""
    if not backend.shared:
        pytest.skip("local sessions share nothing")
    return backend
