"""Whether what was read as JSON, or is to be written as it, has the types that its fields ask for. Pure.

A journal or an archive may come from anywhere; what has the wrong type is damage, and is found here and not later.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from math import isfinite
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_origin

from ctxfs.errors import InvalidRecord

__all__ = ["check_types", "check_values"]

_Accepted = tuple[type, ...]


def check_types(value: Any) -> None:
    """Raise ``InvalidRecord`` when a field of the dataclass ``value``, or of one in it, is not of its type."""
    kind: type = type(value)
    for name, expected in _types_of(kind).items():
        found = getattr(value, name)
        if type(found) not in expected.sure:
            expected.check(name, found)
            if is_dataclass(found):
                check_types(found)


def check_values(kind: type, values: Mapping[str, Any]) -> None:
    """Raise ``InvalidRecord`` when one of ``values``, by name, is not what the field of the dataclass ``kind`` takes.

    Dataclasses among them have been checked already.
    """
    expected = _types_of(kind)
    for name, value in values.items():
        if type(value) not in expected[name].sure:
            expected[name].check(name, value)


@dataclass(frozen=True, slots=True)
class _FieldType:
    """What a field takes. ``sure``: types of which every value will do; ``parts``: those of a tuple's parts."""

    sure: frozenset[type]
    accepted: _Accepted
    parts: _Accepted

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, self.accepted) or (isinstance(value, float) and not isfinite(value)):
            raise InvalidRecord(f"{name} is {value!r:.80}")
        if isinstance(value, tuple) and not all(isinstance(part, self.parts) for part in value):
            raise InvalidRecord(f"{name} has parts of the wrong type: {value!r:.80}")


@cache
def _types_of(kind: type) -> Mapping[str, _FieldType]:
    """What each field of a dataclass takes, by its name; worked out once, as every line of a journal asks for it."""
    return MappingProxyType({field.name: _field_type(field.type) for field in fields(kind)})


def _field_type(annotation: Any) -> _FieldType:
    accepted = _accepted(annotation)
    sure = frozenset(kind for kind in accepted if kind not in (float, tuple) and not is_dataclass(kind))
    return _FieldType(sure, accepted, _parts(annotation))


def _accepted(annotation: Any) -> _Accepted:
    if isinstance(annotation, UnionType):
        return tuple(kind for part in get_args(annotation) for kind in _accepted(part))
    if annotation is float:
        return (int, float)
    origin = get_origin(annotation)
    return (dict,) if origin is Mapping else (origin or annotation,)


def _parts(annotation: Any) -> _Accepted:
    for part in get_args(annotation) if isinstance(annotation, UnionType) else (annotation,):
        if get_origin(part) is tuple:
            return _accepted(get_args(part)[0])
    return ()
