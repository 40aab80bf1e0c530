"""Check that values read from JSON, or to be written as JSON, have the types of their fields. Pure.

A journal or an archive may come from anywhere; a value of the wrong type is damage, and is found here, not later.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache
from itertools import chain
from math import isfinite
from operator import attrgetter
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_origin

from ctxfs.errors import InvalidRecord

_Accepted = tuple[type, ...]


def check_types(value: Any) -> None:
    """Raise ``InvalidRecord`` if a field of the dataclass ``value``, or of one inside it, has the wrong type."""
    kind: type = type(value)
    values = reader_of(kind)(value)
    for number, name, expected in _unsure(kind, tuple(map(type, values))):
        found = values[number]
        if type(found) not in expected.inner:
            expected.check(name, found)
        if type(found) in expected.inner or is_dataclass(found):
            check_types(found)


def check_values(kind: type, values: Mapping[str, Any]) -> None:
    """Raise ``InvalidRecord`` if one of ``values``, by name, has the wrong type for its field of dataclass ``kind``.

    Dataclasses among them have been checked already.
    """
    expected = _types_of(kind)
    for name, value in values.items():
        if type(value) not in expected[name].sure:
            expected[name].check(name, value)


@dataclass(frozen=True, slots=True)
class _FieldType:
    """What a field takes. ``sure``: types of which every value is valid; ``inner``: dataclasses, checked in turn.

    ``parts``: the types of a tuple's parts.
    """

    sure: frozenset[type]
    inner: frozenset[type]
    accepted: _Accepted
    parts: _Accepted

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, self.accepted) or (isinstance(value, float) and not isfinite(value)):
            raise InvalidRecord(f"{name} is {value!r:.80}")
        if isinstance(value, tuple) and value and not all(isinstance(part, self.parts) for part in value):
            raise InvalidRecord(f"{name} has parts of the wrong type: {value!r:.80}")


@cache
def _types_of(kind: type) -> Mapping[str, _FieldType]:
    """What each field of a dataclass takes, by name; computed once, since every line of a journal needs it."""
    return MappingProxyType({field.name: _field_type(field.type) for field in fields(kind)})


@lru_cache(maxsize=1_024)  # of types that others made, too
def _unsure(kind: type, found: tuple[type, ...]) -> tuple[tuple[int, str, "_FieldType"], ...]:
    """The fields of a dataclass that must be checked, if their values have the types ``found``; and their places."""
    unsure = []
    for place, (name, expected) in enumerate(_types_of(kind).items()):
        if found[place] not in expected.sure:
            unsure.append((place, name, expected))
    return tuple(unsure)


@cache
def reader_of(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of all fields of a dataclass, in order, and then the first one again.

    ``attrgetter`` returns a tuple only of two values or more.
    """
    names = tuple(_types_of(kind))
    return attrgetter(*names, names[0])


def _field_type(annotation: Any) -> _FieldType:
    accepted = _accepted(annotation)
    inner = frozenset(kind for kind in accepted if is_dataclass(kind))
    sure = frozenset(kind for kind in accepted if kind not in (float, tuple)) - inner
    return _FieldType(sure, inner, accepted, _parts(annotation))


def _accepted(annotation: Any) -> _Accepted:
    if isinstance(annotation, UnionType):
        return tuple(chain.from_iterable(map(_accepted, get_args(annotation))))
    if annotation is float:
        return (int, float)
    origin = get_origin(annotation)
    return (dict,) if origin is Mapping else (origin or annotation,)


def _parts(annotation: Any) -> _Accepted:
    for part in get_args(annotation) if isinstance(annotation, UnionType) else (annotation,):
        if get_origin(part) is tuple:
            return _accepted(get_args(part)[0])
    return ()
