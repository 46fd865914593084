"""Writes the modules that end in _pb2 from protos/, or with --check says whether they are stale.

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
PROTOS = sorted((ROOT / "protos").rglob("*.proto"))


def generate() -> dict[Path, str]:
    """Texts of the generated files by their paths in the repository."""
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
        made = sorted(Path(out).rglob("*_pb2.py*"))
        return {_target(path.relative_to(out)): _in_package(path.read_text()) for path in made}


_PACKAGES = {"jflow/v1": "jflow/net/protocol/v1", "jflow/records/v1": "jflow/state/records/v1"}
"""Folders of the generated code by those of its proto packages, whose names are on the wire."""


def _target(path: Path) -> Path:
    return Path(_PACKAGES[path.parent.as_posix()], path.name)


def _in_package(text: str) -> str:
    """The generated imports name the folders of the protos."""
    for folder, package in _PACKAGES.items():
        imported, module = (path.replace("/", ".") for path in (folder, package))
        pattern = rf"^from {re.escape(imported)} import"
        text = re.sub(pattern, f"from {module} import", text, flags=re.MULTILINE)
    return text


def main() -> None:
    texts = generate()
    if "--check" in sys.argv[1:]:
        stale = [str(path) for path, text in texts.items() if (ROOT / path).read_text() != text]
        sys.exit(f"out of date, run `make protos`: {stale}" if stale else 0)
    for path, text in texts.items():
        (ROOT / path).write_text(text)


if __name__ == "__main__":
    main()
