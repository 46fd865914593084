"""Compiles a program, and prints the modules that this has imported."""

from __future__ import annotations

import json
import sys

import jax

if __name__ == "__main__":
    before = set(sys.modules)
    jax.jit(lambda x: x + 1)(1.0)
    print(json.dumps(sorted(set(sys.modules) - before)), flush=True)
