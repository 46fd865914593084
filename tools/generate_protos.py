"""Writes jflow/protocol/v1 from protos/, or with --check says whether it is up to date.

The generator is an old one on purpose: code of grpcio-tools 1.76 runs on protobuf 6.31 to 7.
"""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "jflow" / "protocol" / "v1"
PROTOS = sorted((ROOT / "protos" / "jflow" / "v1").glob("*.proto"))


def generate() -> dict[str, str]:
    """Texts of the generated files by name."""
    with tempfile.TemporaryDirectory() as out:
        arguments = [
            "protoc",
            f"-I{ROOT / 'protos'}",
            f"-I{files('grpc_tools') / '_proto'}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            *map(str, PROTOS),
        ]
        if protoc.main(arguments) != 0:
            sys.exit("protoc failed")
        made = sorted(Path(out, "jflow", "v1").iterdir())
        return {path.name: _in_package(path.read_text()) for path in made}


def _in_package(text: str) -> str:
    """The generated imports name the proto package; ours is jflow.protocol.v1."""
    return re.sub(r"^from jflow\.v1 import", "from jflow.protocol.v1 import", text, flags=re.M)


def main() -> None:
    texts = generate()
    if "--check" in sys.argv[1:]:
        stale = [name for name, text in texts.items() if (TARGET / name).read_text() != text]
        sys.exit(f"out of date, run `make protos`: {stale}" if stale else 0)
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (TARGET / name).write_text(text)


if __name__ == "__main__":
    main()
