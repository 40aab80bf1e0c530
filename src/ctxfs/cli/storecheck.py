"""``ctxfs store init``, and whether a place allows only one writer of a session, for ``ctxfs doctor``."""

import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import anyio
import typer

from ctxfs.cli.options import STORE_VARIABLE
from ctxfs.errors import SessionNotFound, StorageError
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.trial import Trial, try_stores
from ctxfs.storage.urls import scheme_of, stores_at
from ctxfs.stores.objects.sessions import ObjectSessions
from ctxfs.stores.postgres import SCHEMES, PostgresBucket, shown_url


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """The result of testing the store at ``url``, which is shown without a password."""

    url: str
    trial: Trial

    @property
    def problem(self) -> str | None:
        """What is wrong; None if nothing is."""
        return None if self.trial.problem is None else f"{self.url}: {self.trial.problem}"

    def __str__(self) -> str:
        """One line for people."""
        if self.trial.problem is not None:
            return self.problem or ""
        raced = f"one writer in each of {self.trial.races} races of {self.trial.writers}"
        return f"{self.url}: {raced}; a commit takes {self.trial.commit_ms or 0:.1f} ms"


def store_at(url: str) -> StoreCheck:
    """Test the store that ``url`` names, as a session would use it, with a session of its own that is then removed.

    Raises ``ConfigError`` and ``MissingExtra``.
    """
    stores = stores_at(None, url)
    directory = _directory_of(url)
    is_new = directory is not None and not directory.exists()
    session_id = f"ctxfs-doctor-{uuid4().hex}"
    try:
        trial = try_stores(stores, session_id)
        with suppress(SessionNotFound):  # it was never made
            _remove(stores, session_id)
    except StorageError as error:
        trial = Trial(races=0, writers=0, commit_ms=None, problem=str(error))
    if is_new and directory is not None:
        with suppress(OSError):  # another program uses it by now
            directory.rmdir()
    return StoreCheck(url=shown_url(url), trial=trial)


def _directory_of(url: str) -> Path | None:
    """The directory that a URL names; None: it names something else."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme in {"file", "objects+file"} else None


def _remove(stores: SessionStores, session_id: str) -> None:
    if isinstance(stores, ObjectSessions):
        stores.forget(session_id)
    else:
        anyio.run(stores.remove, session_id)


class Action(StrEnum):
    """What ``ctxfs store`` does."""

    INIT = "init"


def store(
    action: Annotated[  # noqa: ARG001 - there is one; the name says what happens
        Action, typer.Argument(metavar="ACTION", help="init: create the tables of ctxfs in a Postgres database.")
    ],
    url: Annotated[
        str,
        typer.Option(
            "--store", metavar="URL", envvar=STORE_VARIABLE, help="The database: postgresql://…", show_default=False
        ),
    ],
) -> None:
    """Prepare a store before its first use: create the tables in a database.

    Tables that exist stay as they are. The role needs the right to create tables; sessions then need only the rights
    to select, insert, update and delete in ctxfs_meta and ctxfs_object. Buckets and directories need no preparation.
    """
    if scheme_of(url) not in SCHEMES:
        sys.stdout.write(f"{shown_url(url)} needs no preparation\n")
        return
    bucket = PostgresBucket(url)
    try:
        bucket.create_tables()
    finally:
        bucket.close()
    sys.stdout.write(f"{shown_url(url)} is ready\n")
