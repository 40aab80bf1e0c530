"""Arguments and options that several commands share, and how what users type is read and completed.

Spans of time, moments, sizes and shares are read here. Sessions in a store are not offered to a shell, since each
keystroke would make requests.
"""

import re
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import anyio
import typer

from ctxfs.cli.directory import ROOT_VARIABLE, sessions_directory
from ctxfs.cli.session import by_change, open_session
from ctxfs.errors import ConfigError, CtxfsError
from ctxfs.session.entries import entries
from ctxfs.storage.local import is_session
from ctxfs.storage.threads import without_threads

_SPAN = re.compile(r"(\d{1,6})\s*([smhdwy])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)\s*((?:[kmgt]i?)?)b?", re.IGNORECASE)
_DAYS_AGO = {"today": 0, "yesterday": 1}
_PREFIXES = ("", "k", "m", "g", "t")


def span_s(given: str) -> float:
    """The seconds of a span: ``90m``, ``36h``, ``7d``, ``2w``, ``1y``, or ``0``. Raises ``ConfigError``."""
    if given.strip() == "0":
        return 0.0
    if (found := _SPAN.fullmatch(given.strip())) is None:
        raise ConfigError(f"{given!r} is not a span of time: write it as 90m, 36h, 7d, 2w or 1y")
    return float(int(found[1]) * _SECONDS[found[2]])


def moment(given: str) -> float:
    """The moment in seconds since the epoch: an age (``90m``, ``7d``), or a date, which may have a time.

    "today" and "yesterday" are dates. A date without a time zone is in this machine's.
    Raises ``ConfigError`` for anything else.
    """
    if _SPAN.fullmatch(given.strip()) is not None:
        return time.time() - span_s(given)
    if (days_ago := _DAYS_AGO.get(given.strip().lower())) is not None:
        day = datetime.now().astimezone() - timedelta(days=days_ago)
        return day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    try:
        return datetime.fromisoformat(given.strip()).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{given!r} is not a time: write an age such as 90m, 36h, 7d or 2w, or a date, 2026-11-23 or yesterday"
        ) from None


def size_bytes(given: str) -> int:
    """The bytes of a size: ``500``, ``20M``, ``1.5G``; 1 M is 1,000,000 bytes, and 1 Mi is 1,048,576.

    Raises ``ConfigError``.
    """
    if (found := _SIZE.fullmatch(given.strip())) is None:
        raise ConfigError(f"{given!r} is not a size: write it as 500, 20M or 1.5G")
    unit = found[2].lower()
    return int(float(found[1]) * (1_024 if unit.endswith("i") else 1_000) ** _PREFIXES.index(unit[:1]))


def share_of(given: str) -> float:
    """The part that a percentage or a fraction means, above 0 up to 1: ``5%``, ``0.05``. Raises ``ConfigError``."""
    text = given.strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"{given!r} is not a share: write it as 5% or 0.05, above 0 and up to 100%")
    return share


def known_sessions(context: typer.Context, incomplete: str) -> list[str]:
    """The sessions to offer for ``incomplete``, the last changed first."""
    root = _root_of(context)
    if root is None:
        return ["last"]
    with suppress(CtxfsError):
        return ["last", *(name for name in by_change(root, incomplete) if is_session(root, name))]
    return ["last"]


def known_items(context: typer.Context, incomplete: str) -> list[str]:  # noqa: ARG001 - as typer calls it
    """The items of the session that was given before."""
    root, session = _root_of(context), context.params.get("session")
    return [] if root is None or not session else anyio.run(_items, root, session)


def _root_of(context: typer.Context) -> Path | None:
    """The directory that holds the sessions; None for a store, since each keystroke would make requests."""
    if context.params.get("store") is not None:
        return None
    return sessions_directory(context.params.get("root"), may_be_new=True)


async def _items(root: Path, session: str) -> list[str]:
    with suppress(CtxfsError), without_threads():
        async with open_session(root, session) as fs:
            return [entry.item_id for entry in await entries(fs)]
    return []


STORE_VARIABLE = "CTXFS_STORE"

Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        envvar=ROOT_VARIABLE,
        help="The directory that holds sessions (default: ~/.agent/context).",
        show_default=False,
    ),
]
PreviewAbove = Annotated[
    int,
    typer.Option(
        "--preview-above-tokens",
        min=0,
        metavar="N",
        envvar="CTXFS_PREVIEW_ABOVE_TOKENS",
        help="Send a tool's result of up to N tokens whole, and a preview of a larger one; 0: always whole.",
    ),
]
Query = Annotated[
    bool, typer.Option("--query", help="Offer context_query, too: SQL over contents that are JSON, JSON lines or CSV.")
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=STORE_VARIABLE,
        help="Where sessions are, instead of a directory: s3://bucket/prefix, gs://..., az://... or postgresql://...",
        show_default=False,
    ),
]
SessionArgument = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        autocompletion=known_sessions,
        help="A session's id, the beginning of one, or 'last' for the newest.",
    ),
]
ItemArgument = Annotated[
    str, typer.Argument(metavar="ITEM", autocompletion=known_items, help="An item's id, or the beginning of one.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would be done.")]
Unasked = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")]
Since = Annotated[
    float | None,
    typer.Option(
        "--since",
        metavar="TIME",
        parser=moment,
        help="Only sessions changed since: a date, or an age such as 90m, 36h, 7d, 2w.",
    ),
]
