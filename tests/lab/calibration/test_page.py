"""The code of docs/calibration.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from jflow.lab.calibration.probes import PROBES

PAGE = (Path(__file__).parents[3] / "docs" / "calibration.md").read_text()


def test_the_blocks_run(capsys) -> None:
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), {})
    assert "the prior: nothing is measured" in capsys.readouterr().out


def test_the_page_counts_the_programs() -> None:
    assert f"fitted to {len(PROBES)} programs" in PAGE
    assert len({probe.name for probe in PROBES}) == len(PROBES)
