"""The session that was meant by an id that no session has."""

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ctxfs.errors.spelling import nearest
from ctxfs.messages.names import session_name
from ctxfs.storage.base import is_hidden
from ctxfs.storage.local import is_session

_MOST = 1_000
"""Of more sessions only so many are compared, which takes a tenth of a second."""


def likely_session(given: str, ids: Iterable[str]) -> str:
    """The one of ``ids`` that is spelled most like ``given``, or the one of the thread ``given``; "" if none is."""
    known = list(ids)
    of_thread = session_name(given) if given else ""
    if of_thread in known:
        return of_thread
    return nearest(given, islice(known, _MOST)) or ""


def likely_session_under(root: Path, given: str) -> str:
    """``likely_session`` among the sessions under a root; "" also if there is no such root."""
    found = ""
    with suppress(OSError):
        found = likely_session(given, [name for name in os.listdir(root) if not is_hidden(name)])  # noqa: PTH208
    return found if found and is_session(root, found) else ""
