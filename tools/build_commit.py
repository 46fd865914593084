"""Build hook of Hatchling: a wheel says from which commit it was built, in jflow/COMMIT."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """Writes the commit into the wheel, where Git knows it; a checkout asks Git itself."""

    PLUGIN_NAME = "custom"
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # A source archive that is unpacked inside of another repository has no .git of its own.
        if version == "editable" or not Path(self.root, ".git").exists():
            return
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        environment = {key: value for key, value in os.environ.items() if key[:4] != "GIT_"}
        try:
            commit = subprocess.check_output(command, cwd=self.root, env=environment, text=True)
        except (FileNotFoundError, subprocess.CalledProcessError):  # no Git, or not allowed here
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "COMMIT"
        path.write_text(commit)
        build_data["force_include"][str(path)] = "jflow/COMMIT"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()
