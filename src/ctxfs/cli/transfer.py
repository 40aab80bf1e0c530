"""Commands that move sessions: export, import and copy."""

from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from ctxfs.cli.directory import sessions_directory
from ctxfs.cli.options import AsJson, Root, SessionArgument, StoreUrl
from ctxfs.cli.output import print_json, print_line
from ctxfs.cli.session import find_session, sessions_at, stores_of
from ctxfs.errors import ConfigError
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.session.copying import copy_session
from ctxfs.session.transfer.sessions import MAX_BYTES, MAX_FILES, Transferred, export_session, import_session
from ctxfs.storage.urls import at_url, stores_at
from ctxfs.text import figures


def export(
    session: SessionArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist yet.")],
    *,
    compress: Annotated[bool, typer.Option("--compress", help="Compress the file with zstd.")] = False,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write a session into one file.

    It has everything that the session stored. Every content is checked on the way. An agent may be writing the
    session. `ctxfs import` reads both forms.
    """
    place = sessions_at(root, store)
    session_id = anyio.run(find_session, place, session)
    work = partial(export_session, session_id, file.absolute(), root_path=stores_of(place), compress=compress)
    _print_transferred(anyio.run(work), as_json=as_json)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `ctxfs export` wrote.")],
    *,
    session_id: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="Give the session another id.", show_default=False)
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=0, metavar="N", help="Refuse more bytes than this.")] = MAX_BYTES,
    max_files: Annotated[int, typer.Option(min=0, metavar="N", help="Refuse more contents than this.")] = MAX_FILES,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a session from an exported file.

    Everything in the file is checked; the session appears as a whole or not at all.
    """
    if not file.exists():
        raise ConfigError(f"there is no file {file} to import")
    stores = stores_of(sessions_at(root, store, may_be_new=True))
    done = anyio.run(
        partial(
            import_session,
            file.absolute(),
            root_path=stores,
            session_id=session_id,
            max_bytes=max_bytes,
            max_files=max_files,
        )
    )
    _print_transferred(done, as_json=as_json)


def copy(
    session: SessionArgument,
    *,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="Copy it from the directory to this store.", show_default=False),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="Copy it from this store to the directory.", show_default=False),
    ] = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Copy a session to a store or from one, or update it.

    URL is s3://bucket/prefix, gs://..., az://... or postgresql://... The session is copied byte for byte, and stays
    where it is. If both copies were written to, nothing is changed.
    """
    if (to is None) == (from_ is None):
        raise ConfigError("give copy one URL: --to URL from the directory to a store, --from URL the other way")
    directory = stores_at(sessions_directory(root, may_be_new=from_ is not None))
    source = directory if from_ is None else at_url(from_)
    target = directory if to is None else at_url(to)
    session_id = anyio.run(find_session, source, session)
    done = anyio.run(copy_session, session_id, source, target)
    if as_json:
        keys = {"session_id": done.session_id, "from": done.source, "to": done.target}
        print_json({**keys, "files": done.files, "bytes": done.size_bytes})
        return
    copied = f"{plural(done.files, 'file')}, {figures.size(done.size_bytes)}, now in {done.target}"
    nothing = f"{done.target} already has all of it"
    print_line(f"{done.session_id}: {copied if done.size_bytes else nothing}")


def _print_transferred(done: Transferred, *, as_json: bool) -> None:
    if as_json:
        values = {"session_id": done.session_id, "path": str(done.path), "files": done.files, "bytes": done.size_bytes}
        print_json(values)
        return
    held = f"{plural(done.files, 'content')}, {figures.size(done.size_bytes)} with its journal"
    print_line(f"{done.session_id}: {held}, now in {done.path}")
