"""Mutated graph files, which a process of its own imports."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from tests.fuzz.campaign import Campaign
from tests.fuzz.corpus import graph_files
from tests.fuzz.tally import Growth, Tally

_PATIENCE_S = 120.0


class Importer:
    """A process that imports graph files."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.fuzz.importer"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it says when its validator has ended
            text=True,
        )
        self.growth = Growth(self._process.pid)

    def imported(self, file: Path) -> dict[str, Any] | None:
        """What became of a file; None if the process has ended or does not answer."""
        to: IO[str] | None = self._process.stdin
        answers: IO[str] | None = self._process.stdout
        assert to is not None
        assert answers is not None
        to.write(f"{file}\n")
        to.flush()
        if not select.select([answers], [], [], _PATIENCE_S)[0]:
            return None
        line = answers.readline()
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer

    def end(self) -> str:
        """Ends the process; returns how it had ended, if it had."""
        code = self._process.poll()
        self._process.kill()
        self._process.communicate()
        return "does not answer" if code is None else f"has ended with {code}"


def try_files(campaign: Campaign, tally: Tally, thread: int, n_threads: int) -> None:
    """Imports files; none may end the importer, or raise what is no error of jflow's."""
    with tempfile.TemporaryDirectory() as folder:
        file, importer = Path(folder) / "graph", Importer()
        try:
            for number in campaign.numbers(thread, n_threads):
                mutator = campaign.mutator(number)
                data = mutator.archive(mutator.pick(graph_files()))
                file.write_bytes(data)
                answer = importer.imported(file)
                if answer is None:
                    tally.add("ended the importer")
                    tally.violate(f"the importer {importer.end()}", number, data)
                    importer = Importer()
                    continue
                tally.add(" ".join(filter(None, (answer["outcome"], _brief(answer)))))
                if answer["outcome"] == "foreign":
                    tally.violate(answer["error"], number, data)
                if grown := importer.growth.check():
                    tally.violate(grown)
        finally:
            importer.end()


def _brief(answer: dict[str, Any]) -> str:
    return str(answer["error"]).partition(":")[0]
