"""Forms: how values of a type are encoded and decoded, derived from the type's annotation."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union

from jflow.base.packing.decoder import Decoder, Family, Where, family_of
from jflow.base.values import Shape, TensorSpec


class Range(NamedTuple):
    """The integers that an `Annotated[int, Range(low, high)]` may be, both included."""

    low: int = 0
    high: int = 2**63 - 1


class _Columns:
    """Says of a tuple of records that it is encoded by column."""


T = TypeVar("T")

ByColumn = Annotated[tuple[T, ...], _Columns]
"""A tuple of records of one class that may be long: it is encoded as a map of columns, one for each
field, so that names are written once and the values of a field are checked together."""


class Form(ABC):
    """How the values of a type are encoded and decoded.

    Attributes:
      families: the families of its encoded values, which tell the members of a union apart.
    """

    families: frozenset[Family]

    @abstractmethod
    def plain(self, value: Any, where: Where) -> Any:
        """A value in terms of what MessagePack has. Raises InvalidArgumentError if it is none."""

    @abstractmethod
    def read(self, decoder: Decoder, where: Where) -> Any:
        """The next value of a decoder. Raises InvalidArgumentError if it is not of this form."""

    def plain_items(self, values: Sequence[Any], where: Where) -> list[Any]:
        """The items of a list, each as `plain`."""
        return [self.plain(one, where.inside(i)) for i, one in enumerate(values)]

    def read_items(self, decoder: Decoder, n_items: int, where: Where) -> list[Any]:
        """The items of a list, each as `read`."""
        return [self.read(decoder, where.inside(i)) for i in range(n_items)]


class _Scalar(Form):
    def __init__(self, family: Family, expected: str = "") -> None:
        self.families = frozenset({family})
        self._expected = expected or family.value

    def plain(self, value: Any, where: Where) -> Any:
        if family_of(value) not in self.families:
            raise where.error(self._expected, repr(value))
        return self._checked(value, where)

    def read(self, decoder: Decoder, where: Where) -> Any:
        if decoder.family(where) not in self.families:
            decoder.refuse(self._expected, where)
        return self._checked(decoder.scalar(where), where)

    def plain_items(self, values: Sequence[Any], where: Where) -> list[Any]:
        return [*values] if self._are_plain(values, where) else super().plain_items(values, where)

    def read_items(self, decoder: Decoder, n_items: int, where: Where) -> list[Any]:
        return self.plain_items(decoder.scalars(n_items, self._expected, where), where)

    def _checked(self, value: Any, where: Where) -> Any:
        return value

    def _are_plain(self, values: Sequence[Any], where: Where) -> bool:
        """Whether `plain` would return all values as they are; False if that is not sure."""
        return {*map(type, values)} <= _TYPES[self.families]


class _Text(_Scalar):
    """Text or bytes, limited in length."""

    def _are_plain(self, values: Sequence[Any], where: Where) -> bool:
        if not super()._are_plain(values, where):
            return False
        is_long = max(map(len, values), default=0) > where.limits.n_text
        return not is_long and all(one.isascii() for one in values)

    def _checked(self, value: Any, where: Where) -> Any:
        limit = where.limits.n_text
        try:
            n_bytes = len(value.encode() if isinstance(value, str) else value)
        except UnicodeEncodeError:
            raise where.error("valid Unicode", repr(value)) from None
        if n_bytes > limit:
            raise where.error(f"at most {limit} bytes", str(n_bytes))
        return value


class _Float(_Scalar):
    """A finite float; -0.0 is encoded as the 0.0 that it is equal to."""

    def _are_plain(self, values: Sequence[Any], where: Where) -> bool:
        return super()._are_plain(values, where) and all(map(math.isfinite, values)) and all(values)

    def _checked(self, value: Any, where: Where) -> Any:
        if not math.isfinite(value):
            raise where.error("a finite float", repr(value))
        return value + 0.0


class _Integer(_Scalar):
    def __init__(self, limits: Range) -> None:
        super().__init__(Family.INTEGER)
        self._limits = limits

    def _are_plain(self, values: Sequence[Any], where: Where) -> bool:
        if not values or not super()._are_plain(values, where):
            return False
        low, high = self._limits
        return bool(low <= min(values) and max(values) <= high)

    def _checked(self, value: Any, where: Where) -> Any:
        low, high = self._limits
        if not low <= value <= high:
            raise where.error(f"an integer from {low} to {high}", repr(value))
        return value


class _Choice(Form):
    """One of a few texts."""

    families = frozenset({Family.TEXT})

    def __init__(self, choices: Sequence[str]) -> None:
        self._choices = choices

    def plain(self, value: Any, where: Where) -> Any:
        if value not in self._choices:
            raise where.error(f"one of {', '.join(self._choices)}", repr(value))
        return value

    def read(self, decoder: Decoder, where: Where) -> Any:
        return self.plain(_TEXT.read(decoder, where), where)


class _List(Form):
    """A list of values of one form, read as a tuple or list."""

    families = frozenset({Family.LIST})

    def __init__(self, item: Form, make: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._item = item
        self._make = make

    def plain(self, value: Any, where: Where) -> Any:
        if family_of(value) is not Family.LIST:
            raise where.error(Family.LIST.value, repr(value))
        where.count(len(value))
        return self._item.plain_items(value, where)

    def read(self, decoder: Decoder, where: Where) -> Any:
        if decoder.family(where) is not Family.LIST:
            decoder.refuse(Family.LIST.value, where)
        n_items = decoder.header(Family.LIST, where)
        return self._make(self._item.read_items(decoder, n_items, where))


class _Tuple(Form):
    """A list of a fixed length whose items have forms of their own."""

    families = frozenset({Family.LIST})

    def __init__(self, items: Sequence[Form]) -> None:
        self._items = items
        self._expected = f"a list of {len(items)} items"

    def plain(self, value: Any, where: Where) -> Any:
        if family_of(value) is not Family.LIST or len(value) != len(self._items):
            raise where.error(self._expected, repr(value))
        where.count(len(value))
        pairs = zip(self._items, value, strict=True)
        return [form.plain(one, where.inside(i)) for i, (form, one) in enumerate(pairs)]

    def read(self, decoder: Decoder, where: Where) -> Any:
        if decoder.family(where) is not Family.LIST:
            decoder.refuse(self._expected, where)
        n_items = decoder.header(Family.LIST, where)
        if n_items != len(self._items):
            raise where.error(self._expected, f"{n_items} items")
        return tuple(form.read(decoder, where.inside(i)) for i, form in enumerate(self._items))


class _Map(Form):
    """A map from text to values of one form; encoded in the order of its keys."""

    families = frozenset({Family.MAP})

    def __init__(self, value: Form, is_ordered: bool = True) -> None:
        self._value = value
        self._is_ordered = is_ordered

    def plain(self, value: Any, where: Where) -> Any:
        if not isinstance(value, dict):
            raise where.error(Family.MAP.value, repr(value))
        where.count(len(value))
        keys = sorted(_TEXT.plain(key, where.inside("<key>")) for key in value)
        return {key: self._value.plain(value[key], where.inside(key)) for key in keys}

    def read(self, decoder: Decoder, where: Where) -> Any:
        return read_map(decoder, where, lambda _: self._value, self._is_ordered)


def read_map(
    decoder: Decoder, where: Where, form: Callable[[str], Form], is_ordered: bool = True
) -> dict[str, Any]:
    """A map with text as keys, each of them once.

    Args:
      decoder, where: as for `Form.read`.
      form: gives the form of the value for a key, or raises InvalidArgumentError.
      is_ordered: whether the keys must be in order, so that equal maps are equal bytes.
    """
    if decoder.family(where) is not Family.MAP:
        decoder.refuse(Family.MAP.value, where)
    found: dict[str, Any] = {}
    last = None
    for _ in range(decoder.header(Family.MAP, where)):
        key = _TEXT.read(decoder, where.inside("<key>"))
        if key in found or (is_ordered and last is not None and key < last):
            raise where.error("keys in order, each once", f"{key!r} after {last!r}")
        found[key] = form(key).read(decoder, where.inside(key))
        last = key
    return found


class RecordForm(Form):
    """The fields of a dataclass as a map: all of them, in the order of their declaration.

    Args:
      record: the dataclass.
      fields: the forms of its fields by name.
    """

    families = frozenset({Family.MAP})

    def __init__(self, record: type[Any], fields: Mapping[str, Form]) -> None:
        self._record = record
        self._fields = fields
        self._expected = f"a record of {', '.join(fields) or 'nothing'}"

    def plain(self, value: Any, where: Where) -> Any:
        if type(value) is not self._record:
            raise where.error(f"a {self._record.__name__}", repr(value))
        where.count(len(self._fields))
        return {
            name: form.plain(getattr(value, name), where.inside(name))
            for name, form in self._fields.items()
        }

    def read(self, decoder: Decoder, where: Where) -> Any:
        if decoder.family(where) is not Family.MAP:
            decoder.refuse(self._expected, where)
        n_fields = decoder.header(Family.MAP, where)
        values = _read_fields(decoder, n_fields, self._fields, self._expected, where)
        try:
            return self._record(**values)
        except (TypeError, ValueError) as error:
            raise where.invalid(error) from None


def _read_fields(
    decoder: Decoder, n_fields: int, fields: Mapping[str, Form], expected: str, where: Where
) -> dict[str, Any]:
    """The items of a map that is to have all fields, in their order."""
    if n_fields != len(fields):
        raise where.error(expected, f"{n_fields} fields")
    values = {}
    for name, form in fields.items():
        key = _TEXT.read(decoder, where.inside("<key>"))
        if key != name:
            raise where.error(f"the key {name!r} of {expected}", repr(key))
        values[name] = form.read(decoder, where.inside(name))
    return values


class _Table(Form):
    """Records of one class as a map of columns, in the order of the fields; empty without records.

    Args:
      record, fields: as for `RecordForm`.
    """

    families = frozenset({Family.MAP})

    def __init__(self, record: type[Any], fields: Mapping[str, Form]) -> None:
        self._record = record
        self._columns = {name: _List(form, list) for name, form in fields.items()}
        self._expected = f"a table of {', '.join(fields)}"

    def plain(self, value: Any, where: Where) -> Any:
        if family_of(value) is not Family.LIST:
            raise where.error(Family.LIST.value, repr(value))
        for i, one in enumerate(value):
            if type(one) is not self._record:
                raise where.inside(i).error(f"a {self._record.__name__}", repr(one))
        if not value:
            return {}
        where.count(len(self._columns))
        return {
            name: column.plain([getattr(one, name) for one in value], where.inside(name))
            for name, column in self._columns.items()
        }

    def read(self, decoder: Decoder, where: Where) -> Any:
        if decoder.family(where) is not Family.MAP:
            decoder.refuse(self._expected, where)
        n_columns = decoder.header(Family.MAP, where)
        if not n_columns:
            return ()
        columns = _read_fields(decoder, n_columns, self._columns, self._expected, where)
        lengths = {*map(len, columns.values())}
        if len(lengths) > 1 or 0 in lengths:
            found = f"columns of {', '.join(map(str, sorted(lengths)))} rows"
            raise where.error("columns of as many rows, at least one", found)
        try:
            return tuple(map(self._record, *columns.values()))
        except (TypeError, ValueError) as error:
            raise where.invalid(error) from None


class _DtypeName(Form):
    """A dtype by its name; `TensorSpec` looks it up."""

    families = frozenset({Family.TEXT})

    def plain(self, value: Any, where: Where) -> Any:
        return value.name

    def read(self, decoder: Decoder, where: Where) -> Any:
        return _TEXT.read(decoder, where)


class _Union(Form):
    """Values of one of several forms, which differ in their families."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self._forms = {family: form for form in forms for family in form.families}
        if len(self._forms) < sum(len(form.families) for form in forms):
            raise TypeError("the members of a union must be of different families")
        self.families = frozenset(self._forms)
        self._expected = " or ".join(family.value for family in Family if family in self._forms)

    def plain(self, value: Any, where: Where) -> Any:
        form = self._forms.get(family_of(value))
        if form is None:
            raise where.error(self._expected, repr(value))
        return form.plain(value, where)

    def read(self, decoder: Decoder, where: Where) -> Any:
        form = self._forms.get(decoder.family(where))
        if form is None:
            decoder.refuse(self._expected, where)
        return form.read(decoder, where)


_TYPES: Mapping[frozenset[Family], frozenset[type]] = {
    frozenset({family_of(value)}): frozenset({type(value)})
    for value in (None, False, 0, 0.0, "", b"")
}
"""The Python types of scalars, by their families."""

_TEXT = _Text(Family.TEXT)
_SCALARS: Mapping[Any, Form] = {
    type(None): _Scalar(Family.NIL),
    bool: _Scalar(Family.FLAG),
    int: _Integer(Range(-(2**63), 2**64 - 1)),
    float: _Float(Family.FLOAT),
    str: _TEXT,
    bytes: _Text(Family.BYTES),
}


class _Any(_Union):
    """Any of the above; maps have text as keys, and lists are read as lists."""

    def __init__(self, is_ordered: bool = True) -> None:
        super().__init__([*_SCALARS.values(), _List(self, list), _Map(self, is_ordered)])


ANY = _Any()
"""The form of plain values."""

ANY_ORDER = _Any(is_ordered=False)
"""The form of plain values and of records whose fields are not known."""


def form_of(annotation: Any) -> Form:
    """The form of the values that an annotation allows.

    Supported are None, bool, int (64 bits, `Annotated` with a `Range`), float (finite), str, bytes,
    `Literal` of texts, `Any` (plain values), `tuple`, `list`, `Sequence`, `Mapping[str, …]`, unions
    of these that differ in their family, `TensorSpec`, dataclasses of these, and tuples of those
    `ByColumn`.

    Raises:
      TypeError: if it is something else.
    """
    return _form_of(annotation)


@cache
def _form_of(annotation: Any) -> Form:
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if annotation is Any:
        return ANY
    if annotation is TensorSpec:
        return RecordForm(TensorSpec, {"shape": form_of(Shape), "dtype": _DtypeName()})
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return RecordForm(annotation, fields_of(annotation))
    found = _generic(typing.get_origin(annotation), typing.get_args(annotation))
    if found is None:
        raise TypeError(f"records cannot hold {annotation!r}")
    return found


def _generic(origin: Any, arguments: tuple[Any, ...]) -> Form | None:
    found: Form | None = None
    if origin in (Union, types.UnionType):
        found = _Union([form_of(one) for one in arguments])
    elif origin is Annotated and arguments[0] is int and isinstance(arguments[1], Range):
        found = _Integer(arguments[1])
    elif origin is Annotated and arguments[1] is _Columns:
        record = typing.get_args(arguments[0])[0]
        found = _Table(record, fields_of(record))
    elif origin is Literal and all(isinstance(choice, str) for choice in arguments):
        found = _Choice(arguments)
    elif origin is tuple and arguments[1:] != (...,):
        found = _Tuple([form_of(one) for one in arguments])
    elif origin in (tuple, list, Sequence):
        found = _List(form_of(arguments[0]), list if origin is list else tuple)
    elif origin in (dict, Mapping) and arguments[0] is str:
        found = _Map(form_of(arguments[1]))
    return found


def fields_of(record: type[Any]) -> dict[str, Form]:
    """The forms of the fields of a dataclass that its constructor takes."""
    hints = typing.get_type_hints(record, include_extras=True)
    return {one.name: form_of(hints[one.name]) for one in dataclasses.fields(record) if one.init}


class Fields(Form):
    """A map that holds some of a few values by name: the keyword arguments of a function.

    Args:
      forms: the forms of the values by name.
      required: the names that must be there.
      others: the form of other names, None if there must not be any.
    """

    families = frozenset({Family.MAP})

    def __init__(
        self, forms: Mapping[str, Form], required: Collection[str], others: Form | None = None
    ) -> None:
        self._forms = forms
        self._required = required
        self._others = others

    def plain(self, value: Any, where: Where) -> Any:
        return _Map(ANY).plain(value, where)

    def read(self, decoder: Decoder, where: Where) -> Any:
        def form(key: str) -> Form:
            found = self._forms.get(key, self._others)
            if found is None:
                names = ", ".join(sorted(self._forms)) or "no names"
                raise where.error(names, repr(key))
            return found

        found = read_map(decoder, where, form)
        missing = [name for name in self._required if name not in found]
        if missing:
            raise where.error(", ".join(missing), ", ".join(found) or "nothing")
        return found
