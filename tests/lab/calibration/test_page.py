"""The code of docs/lab.md on calibrations runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from jflow.lab.calibration.probes import PROBES

_LAB = (Path(__file__).parents[3] / "docs" / "lab.md").read_text()
PAGE = _LAB.partition("\n## Comparing strategies\n")[0]


def test_the_blocks_run(capsys) -> None:
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), {})
    assert "the prior: nothing is measured" in capsys.readouterr().out


def test_the_page_counts_the_programs() -> None:
    assert f"fitted to {len(PROBES)} programs" in PAGE
    assert len({probe.name for probe in PROBES}) == len(PROBES)
