"""Commands that move sessions: export and import."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from ctxfs.cli.options import AsJson, Root, SessionArgument
from ctxfs.cli.output import for_terminal, print_json
from ctxfs.cli.session import find_session, sessions_directory
from ctxfs.errors import ConfigError
from ctxfs.transfer.sessions import MAX_BYTES, MAX_FILES, Transferred, export_session, import_session

__all__ = ["export", "import_"]


def export(
    session: SessionArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist yet.")],
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Write a session into one file, with everything that it stored.

    Every content is checked on the way. An agent may be writing the session.
    """
    directory = sessions_directory(root)
    session_id = anyio.run(find_session, directory, session)
    done = anyio.run(partial(export_session, session_id, file, root_path=directory))
    _tell(done, as_json=as_json)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `ctxfs export` wrote.")],
    *,
    session_id: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="Give the session another id.", show_default=False)
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=0, metavar="N", help="Refuse more bytes than this.")] = MAX_BYTES,
    max_files: Annotated[int, typer.Option(min=0, metavar="N", help="Refuse more contents than this.")] = MAX_FILES,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Make a session from an exported one.

    Everything in the file is checked; the session appears whole, or not at all.
    """
    if not file.exists():
        raise ConfigError(f"there is no file {file} to import")
    directory = sessions_directory(root)
    done = anyio.run(
        partial(
            import_session,
            file,
            root_path=directory,
            session_id=session_id,
            max_bytes=max_bytes,
            max_files=max_files,
        )
    )
    _tell(done, as_json=as_json)


def _tell(done: Transferred, *, as_json: bool) -> None:
    if as_json:
        values = {"session_id": done.session_id, "path": str(done.path), "files": done.files, "bytes": done.size_bytes}
        print_json(values)
        return
    contents = "1 content" if done.files == 1 else f"{done.files:,} contents"
    told = f"{done.session_id}: {contents}, {done.size_bytes:,} bytes with its journal, now in {done.path}\n"
    sys.stdout.write(for_terminal(told))
