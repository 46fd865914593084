"""Users of a cluster in tests: their tokens, made and used in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jflow.net.protocol.tokens import TokenId
from jflow.net.wire import load_secret


@contextmanager
def as_user(token_id: TokenId) -> Iterator[None]:
    """Context manager in which this process has the token of a user."""
    token = load_secret().token_of(token_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JFLOW_TOKEN", token)
        yield
