"""Certificates for tests."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import pytest

from jflow.base.cluster import ClusterSpec
from jflow.base.roles import AccessRole

HERE = {"ps": ["127.0.0.1:0"], "worker": {0: "127.0.0.1:0", 3: "127.0.0.1:0"}}


def make_certificates(
    directory: Path,
    cluster: object = HERE,
    days: int = 365,
    client_roles: Collection[AccessRole] = (),
) -> Path:
    """Writes the certificates of a cluster; returns the directory."""
    pytest.importorskip("cryptography", reason="the extra jflow[tls] is not installed")
    from jflow.net.wire import authority  # noqa: PLC0415 - it needs the extra

    with pytest.MonkeyPatch.context() as patch:
        if days < 0:
            patch.setattr(authority, "_CLOCKS", timedelta(days=1 - days))
        authority.write_certificates(directory, ClusterSpec(cluster), days, client_roles)
    return directory
