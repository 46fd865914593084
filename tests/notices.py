"""Notices of long waits that come soon, for tests of what is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from jflow.base.deadline.notices import VARIABLE, notice_s


@contextmanager
def notices_after(seconds: float) -> Iterator[None]:
    """A block in which waits are told of after so many seconds instead of 10."""
    with mock.patch.dict(os.environ, {VARIABLE: str(seconds)}):
        notice_s.cache_clear()
        yield
    notice_s.cache_clear()
