"""Checks of settings, one for each kind of value: a ``ConfigError`` names the setting and says what to write."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from ctxfs.errors import ConfigError
from ctxfs.errors.spelling import nearest

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def names_settings(meant: Mapping[str, str] | None = None) -> Callable[[F], F]:
    """Make a class or a function refuse an argument that it does not have, by the name of the one that was meant.

    The error is a ``TypeError``, as Python's own. A setting that must be given and is not is a ``ConfigError``.
    ``meant``: what to write for the name of a setting that another class has.
    """

    def decorate(target: F) -> F:
        parameters = inspect.signature(target).parameters
        known = tuple(parameters)
        needed = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
        function: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
        selves = int(isinstance(target, type))

        @wraps(function)
        def checked(*args: Any, **settings: Any) -> Any:
            refuse_unknown(target.__name__, settings, known, meant or {})
            by_place = known[: len(args) - selves]
            for name in needed:
                if name not in settings and name not in by_place:
                    raise ConfigError(f"{target.__name__} needs {name}: write {target.__name__}({name}=...)")
            return function(*args, **settings)

        if not isinstance(target, type):
            return cast("F", checked)
        target.__init__ = checked  # type: ignore[misc]
        return target

    return decorate


def async_with_only(cls: C) -> C:
    """Make ``with`` say that the class needs ``async with``.

    Type checkers do not see what this adds, so ``with`` stays an error for them.
    """

    def enter(self: object) -> None:
        raise TypeError(f"{type(self).__name__} needs `async with`, not `with`")

    def leave(self: object, *_: object) -> None:  # Python looks for it before it enters
        raise TypeError(f"{type(self).__name__} needs `async with`, not `with`")

    cls.__enter__ = enter  # type: ignore[attr-defined]
    cls.__exit__ = leave  # type: ignore[attr-defined]
    return cls


def refuse_unknown(owner: str, given: Iterable[str], known: Sequence[str], meant: Mapping[str, str]) -> None:
    """Raise ``TypeError`` for ``given`` settings that ``owner`` does not have; ``meant``: see ``names_settings``."""
    unknown = [name for name in given if name not in known]
    if unknown:
        said = "; no setting ".join(f"{name!r}: {_setting_meant(name, known, meant)}" for name in unknown)
        raise TypeError(f"{owner} has no setting {said}")


def _setting_meant(name: str, known: Sequence[str], meant: Mapping[str, str]) -> str:
    if name in meant:
        return meant[name]
    likely = nearest(name, known)
    return f"its settings are {', '.join(known)}" if likely is None else f"did you mean {likely!r}?"


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
