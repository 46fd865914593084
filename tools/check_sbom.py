"""Compares a bill of materials with what is installed beside this Python, and with its lock.

    python tools/check_sbom.py SBOM.json requirements.txt

The bill is JSON of CycloneDX; the lock is what pip-compile writes, with hashes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

_OWN = "jflow"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})*)$")


def name_of(text: str) -> str:
    """Returns the name of a package in its normal form."""
    return re.sub(r"[-_.]+", "-", text).lower()


def pins_of(lock: str) -> dict[str, str]:
    """Returns the version of each package in a lock.

    Raises:
      ValueError: if a line is no pin with a hash.
    """
    pins = {}
    for line in re.sub(r"\s*\\\n\s*", " ", lock).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _PIN.match(line.strip())
        if found is None or not found[3]:
            raise ValueError(f"expected NAME==VERSION with hashes, got {line[:80]!r}")
        pins[name_of(found[1])] = found[2]
    return pins


def differences(
    bill: Mapping[str, Any], installed: Mapping[str, str], pins: Mapping[str, str]
) -> Iterator[str]:
    """Yields what is not the same in a bill of materials, an environment and its lock.

    Args:
      bill: the bill, as JSON.
      installed, pins: the versions by name.
    """
    components = {name_of(one["name"]): one for one in bill.get("components", ())}
    for name in sorted({*components, *installed, *pins}):
        listed = components.get(name, {}).get("version")
        if listed != installed.get(name):
            yield f"{name}: the bill has {listed}, the environment {installed.get(name)}"
        if name != _OWN and pins.get(name) != installed.get(name):
            yield f"{name}: the lock has {pins.get(name)}, the environment {installed.get(name)}"
    if _OWN not in components:
        yield f"{_OWN} is not in the bill"
    references = {one["bom-ref"] for one in components.values() if "bom-ref" in one}
    described = {one["ref"] for one in bill.get("dependencies", ())}
    for reference in sorted(references - described):
        yield f"{reference}: the bill does not say what it depends on"


def main() -> int:
    """Prints the differences; returns 1 if there are any."""
    bill, lock = (Path(one).read_text() for one in sys.argv[1:])
    installed = {name_of(one.metadata["Name"]): one.version for one in metadata.distributions()}
    found = [*differences(json.loads(bill), installed, pins_of(lock))]
    print("\n".join(found) or f"{len(installed)} packages, as installed and as locked")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
