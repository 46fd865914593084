"""Examples as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_of(example: Path) -> ModuleType:
    """Returns an example as a module; its `main` does not run, and it imports those beside it."""
    if str(example.parent) not in sys.path:
        sys.path.append(str(example.parent))
    spec = importlib.util.spec_from_file_location(example.stem, example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[example.stem] = module  # where its dataclasses look
    spec.loader.exec_module(module)
    return module
