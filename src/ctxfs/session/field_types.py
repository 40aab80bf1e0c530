"""Whether what was read as JSON, or is to be written as it, has the types that its fields ask for. Pure.

A journal or an archive may come from anywhere; what has the wrong type is damage, and is found here and not later.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from types import UnionType
from typing import Any, get_args, get_origin

from ctxfs.errors import InvalidRecord

__all__ = ["check_types"]

_Accepted = tuple[type, ...]


def check_types(value: Any) -> None:
    """Raise ``InvalidRecord`` when a field of the dataclass ``value``, or of one in it, is not of its type."""
    kind: type = type(value)
    for name, accepted, inner in _fields_of(kind):
        found = getattr(value, name)
        if not isinstance(found, accepted) or (isinstance(found, float) and not isfinite(found)):
            raise InvalidRecord(f"{name} is {found!r:.80}")
        if isinstance(found, tuple) and not all(isinstance(part, inner) for part in found):
            raise InvalidRecord(f"{name} has parts of the wrong type: {found!r:.80}")
        if is_dataclass(found):
            check_types(found)


@cache
def _fields_of(kind: type) -> tuple[tuple[str, _Accepted, _Accepted], ...]:
    """A dataclass's fields, the types that each may have, and those of a tuple's parts."""
    return tuple((field.name, _accepted(field.type), _parts(field.type)) for field in fields(kind))


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
