"""The kinds of data streams that tests of them run on."""

import pytest

VALUES = {"unix": "auto", "tcp": "tcp", "tls": "tcp", "grpc": "grpc"}
"""What JFLOW_TRANSPORT is for each."""


def on(*kinds, also=()):
    """Runs a test on these kinds; on those of `also` in `make test-transports` only."""
    params = [*kinds, *(pytest.param(kind, marks=pytest.mark.product) for kind in also)]
    return pytest.mark.parametrize("kind", params, indirect=True)


def used(kind):
    """What a session tells of the transport."""
    return "unix" if kind == "unix" else "tcp"
