"""The decoders as plain functions from arrays, text and bytes to NumPy arrays.

The functions of `jflow` itself do this only inside a function of a dataset.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import jflow.client.ops as ops  # noqa: PLR0402 - `from jflow` would ask for all public names
from jflow.compiler.graph.stack import EagerDecoding

P = ParamSpec("P")


def _eager(decoder: Callable[P, Any]) -> Callable[P, Any]:
    @wraps(decoder)
    def decode(*args: P.args, **kwargs: P.kwargs) -> Any:
        with EagerDecoding():
            return decoder(*args, **kwargs)

    return decode


decode_csv = _eager(ops.decode_csv)
decode_image = _eager(ops.decode_image)
decode_jpeg = _eager(ops.decode_jpeg)
decode_png = _eager(ops.decode_png)
decode_raw = _eager(ops.decode_raw)
encode_jpeg = _eager(ops.encode_jpeg)
encode_png = _eager(ops.encode_png)
parse_example = _eager(ops.parse_example)
parse_single_example = _eager(ops.parse_single_example)
