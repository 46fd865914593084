"""The table of decoders by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jflow.base.values import Array
from jflow.state.records.csv import decode_csv
from jflow.state.records.image import decode_image, decode_jpeg, decode_png, encode_jpeg, encode_png
from jflow.state.records.parse import parse_example
from jflow.state.records.raw import decode_raw
from jflow.state.records.single import parse_single_example
from jflow.state.records.strings import (
    as_string,
    string_join,
    string_split,
    string_strip,
    string_to_number,
    substr,
)

DECODERS: Mapping[str, Callable[..., Sequence[Array]]] = {
    function.__name__: function
    for function in (
        *(decode_csv, decode_raw, parse_example, parse_single_example),
        *(decode_image, decode_jpeg, decode_png, encode_jpeg, encode_png),
        *(as_string, string_join, string_split, string_strip, string_to_number, substr),
    )
}
"""Functions from arrays to arrays, with attributes as keyword arguments, that steps call by name.

Results may share memory with arguments.
"""
