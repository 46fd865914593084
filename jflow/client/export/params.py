"""Parameters of equations as plain values, and back.

None, bool, int, finite float, str and bytes stand for themselves, and a list for a tuple. Anything
else is a map of one entry, whose key says what it is: {"enum": ["Precision", "HIGHEST"]}. Classes
are those that `jax.lax` makes public, so a file names nothing that this module does not list.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.export
import jax.extend.core as jex
import numpy as np

from jflow.base.values import (
    NUMBERS,
    AbstractValue,
    HostDtype,
    is_key,
    key_dtype,
    key_implementation,
)
from jflow.base.values import string as _string
from jflow.compiler.graph import ResourceRef, VariableRef
from jflow.errors import InvalidArgumentError

ENUMS: dict[str, type[enum.Enum]] = {
    kind.__name__: kind
    for kind in (
        *(jax.lax.AccuracyMode, jax.lax.DotAlgorithmPreset, jax.lax.FftType),
        *(jax.lax.GatherScatterMode, jax.lax.Precision, jax.lax.RandomAlgorithm),
        jax.lax.RoundingMethod,
        *filter(None, [getattr(jax, "Inline", None)]),  # since JAX 0.12
    )
}
RECORDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(jax.lax.ConvDimensionNumbers, jax.lax.DotAlgorithm, jax.lax.GatherDimensionNumbers),
        *(jax.lax.RaggedDotDimensionNumbers, jax.lax.ScatterDimensionNumbers),
    )
}
_PLAIN = (bool, int, str, bytes)


class UnwritableError(Exception):
    """A parameter has no written form; the message names it."""


class UnexportableError(Exception):
    """An equation has neither a written form nor a StableHLO form; the message says why."""


class WritingTables(Protocol):
    """The tables of the document that is being written; each method returns an index into one."""

    def aval(self, aval: AbstractValue) -> int:
        """Returns the index of an abstract value."""

    def array(self, array: Any) -> int:
        """Returns the index of an array."""

    def program(self, jaxpr: jex.ClosedJaxpr) -> int:
        """Returns the index of a program."""

    def exported(self, exported: jax.export.Exported) -> int:
        """Returns the index of a StableHLO program."""

    def variable(self, ref: VariableRef) -> int:
        """Returns the index of a variable."""

    def resource(self, ref: ResourceRef) -> int:
        """Returns the index of a resource."""


class ReadingTables(Protocol):
    """The tables of the document that is being read; the methods look up entries by index."""

    def dim(self, text: str) -> Any:
        """Parses the expression of a size."""

    def aval(self, index: int) -> AbstractValue:
        """Returns an abstract value."""

    def array(self, index: int) -> Any:
        """Returns an array."""

    def program(self, index: int) -> jex.ClosedJaxpr:
        """Returns a program."""

    def exported(self, index: int) -> jax.export.Exported:
        """Returns a StableHLO program."""

    def variable(self, index: int) -> VariableRef:
        """Returns a variable."""

    def resource(self, index: int) -> ResourceRef:
        """Returns a resource."""


def dtype_text(dtype: Any) -> str:
    """Returns the written name of a dtype. Raises UnwritableError if it has none."""
    if is_key(dtype):
        implementation = key_implementation(dtype)
        if isinstance(implementation, str):
            return f"key:{implementation}"
    elif isinstance(dtype, HostDtype) or dtype.name in NUMBERS or dtype == jax.dtypes.float0:
        return "float0" if dtype == jax.dtypes.float0 else str(dtype.name)
    raise UnwritableError(f"the dtype {dtype}")


def dtype_of(text: str) -> Any:
    """Parses a dtype that `dtype_text` wrote. Raises InvalidArgumentError if it is malformed."""
    if text == "float0":
        return jax.dtypes.float0
    if text == _string.name:
        return _string
    kind, _, implementation = text.partition(":")
    if kind == "key" and implementation:
        try:
            return key_dtype(implementation)
        except ValueError as error:
            raise InvalidArgumentError(f"malformed exported graph: {error}") from None
    if text not in NUMBERS:
        raise InvalidArgumentError(f"malformed exported graph: {text!r:.80} is not a dtype")
    return NUMBERS[text]


def encode_param(value: Any, tables: WritingTables) -> Any:
    """Converts a parameter to plain values. Raises UnwritableError if it has no written form."""
    if value is None or type(value) in _PLAIN:
        return value
    if type(value) is float:
        is_plain = math.isfinite(value) and (value or math.copysign(1.0, value) > 0)
        return value if is_plain else {"float": value.hex()}
    if type(value) is tuple:
        return [encode_param(item, tables) for item in value]
    for encoder in (_encode_number, _encode_class, _encode_array, _encode_reference):
        document = encoder(value, tables)
        if document is not None:
            return document
    raise UnwritableError(f"a {type(value).__module__}.{type(value).__qualname__}")


def _encode_class(value: Any, tables: WritingTables) -> Any:
    name = type(value).__name__
    if isinstance(value, enum.Enum) and ENUMS.get(name) is type(value):
        return {"enum": [name, value.name]}
    if RECORDS.get(name) is type(value):
        return {"record": [name, [encode_param(item, tables) for item in value]]}
    if type(value) is list:
        return {"list": [encode_param(item, tables) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: encode_param(item, tables) for key, item in value.items()}}
    return None


def _encode_number(value: Any, tables: WritingTables) -> Any:
    if jax.export.is_symbolic_dim(value):
        return {"dim": str(value)}
    if type(value) is complex:
        return {"complex": [encode_param(value.real, tables), encode_param(value.imag, tables)]}
    return None


def _encode_array(value: Any, tables: WritingTables) -> Any:
    if isinstance(value, np.generic):
        return {"scalar": tables.array(np.asarray(value))}
    if isinstance(value, np.ndarray | jax.Array):
        return {"array": tables.array(value)}
    if isinstance(value, np.dtype | HostDtype) or is_key(value):
        return {"dtype": dtype_text(value)}
    if isinstance(value, AbstractValue):
        return {"aval": tables.aval(value)}
    return None


def _encode_reference(value: Any, tables: WritingTables) -> Any:
    if isinstance(value, jex.ClosedJaxpr):
        return {"program": tables.program(value)}
    if isinstance(value, jex.Jaxpr):
        if value.constvars:
            raise UnwritableError("a program with constants that are not known")
        return {"body": tables.program(jex.ClosedJaxpr(value, ()))}
    if isinstance(value, jax.export.Exported):
        return {"exported": tables.exported(value)}
    if isinstance(value, VariableRef):
        return {"variable": tables.variable(value)}
    if isinstance(value, ResourceRef):
        return {"resource": tables.resource(value)}
    return None


def decode_param(value: Any, tables: ReadingTables) -> Any:
    """Decodes what `encode_param` wrote. Raises InvalidArgumentError if it is malformed."""
    if isinstance(value, list):
        return tuple(decode_param(item, tables) for item in value)
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise _malformed(value)
    ((kind, content),) = value.items()
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise _malformed(value)
    try:
        return decoder(content, tables)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise _malformed(value) from error


def _malformed(value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(f"malformed exported graph: {value!r:.120} is not a parameter")


def _decode_dict(content: Any, tables: ReadingTables) -> dict[str, Any]:
    return {key: decode_param(item, tables) for key, item in content.items()}


def _decode_record(content: Any, tables: ReadingTables) -> Any:
    name, fields = content
    return RECORDS[name](*(decode_param(field, tables) for field in fields))


_DECODERS: dict[str, Callable[[Any, ReadingTables], Any]] = {
    "float": lambda content, _: float.fromhex(content),
    "enum": lambda content, _: ENUMS[content[0]][content[1]],
    "record": _decode_record,
    "list": lambda content, tables: [decode_param(item, tables) for item in content],
    "dict": _decode_dict,
    "dim": lambda content, tables: tables.dim(content),
    "complex": lambda content, tables: complex(*(decode_param(item, tables) for item in content)),
    "scalar": lambda content, tables: tables.array(content)[()],
    "array": lambda content, tables: tables.array(content),
    "dtype": lambda content, _: dtype_of(content),
    "aval": lambda content, tables: tables.aval(content),
    "program": lambda content, tables: tables.program(content),
    "body": lambda content, tables: tables.program(content).jaxpr,
    "exported": lambda content, tables: tables.exported(content),
    "variable": lambda content, tables: tables.variable(content),
    "resource": lambda content, tables: tables.resource(content),
}
