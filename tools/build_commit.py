"""Build hook of Hatchling: a wheel says from which commit it was built, in jflow/COMMIT."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """Writes the commit into the wheel, where Git knows it; a checkout asks Git itself."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        try:
            done = subprocess.run(
                command, cwd=self.root, capture_output=True, text=True, check=False
            )
        except FileNotFoundError:  # there is no Git
            return
        if done.returncode == 0:
            self._folder = tempfile.TemporaryDirectory()
            path = Path(self._folder.name) / "COMMIT"
            path.write_text(done.stdout)
            build_data["force_include"][str(path)] = "jflow/COMMIT"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if folder := getattr(self, "_folder", None):
            folder.cleanup()
