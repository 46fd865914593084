"""A real Chromium, Debian's, which tests of what people see run in: `make test-browser`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

PICTURES = os.environ.get("JFLOW_PICTURES")
"""Where screenshots are written for people to look at, such as docs/pictures; nowhere if unset."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "Chromium is not installed: apt-get install chromium"
    with sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox; all pages are made by these tests.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(PICTURES) if PICTURES else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder
