"""Checks of settings, one for each kind of value: a ``ConfigError`` names the setting and says what to write."""

from collections.abc import Sequence
from typing import Any

from ctxfs.errors import ConfigError

__all__ = [
    "require_bool",
    "require_exception",
    "require_int",
    "require_kind",
    "require_method",
    "require_model",
    "require_number",
    "require_text",
]


def require_int(name: str, value: object, *, at_least: int, at_most: int | None = None) -> None:
    """Raise ``ConfigError`` unless ``value`` is a whole number in these bounds; True and False are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ConfigError(f"{name} is {value!r}: use a whole number, {at_least} or more")
    if at_most is not None and value > at_most:
        raise ConfigError(f"{name} is {value!r}: use a whole number, {at_least} to {at_most}")


def require_number(name: str, value: object, *, at_least: float) -> None:
    """Raise ``ConfigError`` unless ``value`` is a number from ``at_least`` on."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= at_least:
        raise ConfigError(f"{name} is {value!r}: use a number, {at_least:g} or more")


def require_bool(name: str, value: object) -> None:
    """Raise ``ConfigError`` unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}: use True or False")


def require_text(name: str, value: object) -> None:
    """Raise ``ConfigError`` unless ``value`` is a ``str``."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r}: it must be text")


def require_kind(name: str, value: object, kind: Any, use: str) -> None:
    """Raise ``ConfigError``, which says to use ``use``, unless ``value`` is an instance of ``kind`` (or None)."""
    if value is not None and not isinstance(value, kind):
        raise ConfigError(f"{name} is {value!r}: use {use} or None")


def require_method(name: str, value: object, method: str, use: str) -> None:
    """Raise ``ConfigError``, which says to use ``use``, unless ``value`` has that method (or is None).

    Texts and other sequences have methods of the same names, such as ``count``, and are not meant.
    """
    if value is not None and (isinstance(value, type | Sequence) or not callable(getattr(value, method, None))):
        raise ConfigError(f"{name} is {value!r}: use {use} or None")


def require_model(model: object) -> None:
    """Raise ``ConfigError`` unless ``model`` is a ``str``: a model's name, or ""."""
    if not isinstance(model, str):
        raise ConfigError(f'model is {model!r}: use the model\'s name, or "" if it has none')


def require_exception(error: object) -> None:
    """Raise ``ConfigError`` unless ``error`` is an exception."""
    if not isinstance(error, Exception):
        raise ConfigError(f"error is {error!r}: give the exception that the call of the model raised")
