"""Imports graph files: `python -m tests.fuzz.importer`, a path a line, an answer a line."""

from __future__ import annotations

import json
import sys

import jflow as tf


def answer(path: str) -> dict[str, str]:
    """What becomes of a file: whether it is imported, or the error, and if that is jflow's."""
    try:
        with tf.Graph().as_default():
            tf.train.import_meta_graph(path)
    except tf.errors.OpError as error:
        return {"outcome": "refused", "error": type(error).__name__}
    except Exception as error:
        return {"outcome": "foreign", "error": f"{type(error).__name__}: {error!s:.300}"}
    return {"outcome": "imported", "error": ""}


def main() -> None:
    """Answers each line until there are no more."""
    for line in sys.stdin:
        print(json.dumps(answer(line.rstrip("\n"))), flush=True)


if __name__ == "__main__":
    main()
