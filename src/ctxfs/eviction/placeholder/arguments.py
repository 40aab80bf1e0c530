"""A call's large arguments, and what replaces them. Pure."""

from collections.abc import Mapping
from typing import Any

from ctxfs.eviction.placeholder.text import render_argument
from ctxfs.text.jsontext import codec as json_codec

_SMALL_ARGUMENT_CHARS = 200
"""Arguments up to this size stay as they are."""


def as_json(value: Any) -> str:
    """``value`` as JSON text, in which every character but the necessary stands as it is."""
    return json_codec.dumps_text(value)


def large_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are worth a file."""
    return {k: v for k, v in arguments.items() if len(v if isinstance(v, str) else as_json(v)) > _SMALL_ARGUMENT_CHARS}


def without_large_arguments(arguments: Mapping[str, Any], placeholder: str) -> dict[str, Any]:
    """The arguments with a placeholder in the place of the first large one, and a pointer to it in the others'."""
    if not (large := large_arguments(arguments)):
        return dict(arguments)
    first, *others = large
    shown = {first: placeholder, **{key: render_argument(first) for key in others}}
    return {key: shown.get(key, value) for key, value in arguments.items()}
