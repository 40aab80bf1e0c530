"""``ctxfs view``: a page to look at sessions, on this machine only."""

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import anyio
import typer

from ctxfs.cli.lines import to_stderr
from ctxfs.cli.options import Root, StoreUrl, known_sessions
from ctxfs.cli.output import write_private
from ctxfs.cli.session import SessionsAt, find_session, session_or_file, sessions_at, stores_of
from ctxfs.errors import ConfigError, MissingExtra
from ctxfs.lab.ab.compared_page import ComparedFiles
from ctxfs.lab.ab.results import is_results
from ctxfs.lab.recordings.discover import recordings_in
from ctxfs.lab.replay.recorded_page import RecordedFiles
from ctxfs.session.redaction import Redaction

_Shown = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SESSION|FILE",
        autocompletion=known_sessions,
        help="A session's id, the beginning of one, or 'last' for the newest; or files and folders of recordings, "
        "and of results of `ctxfs ab` (default: the list of sessions).",
        show_default=False,
    ),
]


def view(
    shown: _Shown = None,
    *,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=0, max=65535, help="Where to serve (default: 7575, or a free one)."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Let the page restore and pin items, and undo changes.")
    ] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export", metavar="FILE", help="Write the page of the session to a new file.", show_default=False
        ),
    ] = None,
    redact: Annotated[
        list[str] | None,
        typer.Option(
            "--redact", metavar="PATTERN", help="Leave matches of this RE2 expression out of the file; repeatable."
        ),
    ] = None,
    no_contents: Annotated[
        bool, typer.Option("--no-contents", help="Leave everything that users, models and tools wrote out of the file.")
    ] = False,
    root: Root = None,
    store: StoreUrl = None,
) -> None:
    """Look at sessions in a browser, call by call.

    It shows where the context went. For recorded sessions, such as those of Claude Code: what each policy would have
    done.

    The page is served on 127.0.0.1, at an address that nobody can guess, and changes nothing without --write.
    Needs the extra ctxfs[view].
    """
    place = sessions_at(root, store)
    sessions, files = _sessions_and_files(shown or ())
    redaction = Redaction(patterns=tuple(redact or ()), contents=no_contents)
    try:
        if export is not None:
            if write or port is not None:
                raise ConfigError("--export writes a file and serves nothing: leave out --write and --port")
            _export(place, sessions, export, redaction)
        elif redact or no_contents:
            raise ConfigError("--redact and --no-contents say what --export FILE leaves out: name the file")
        else:
            _serve(place, sessions, files, port=port, opens=not no_open, may_write=write)
    except ModuleNotFoundError as error:
        raise MissingExtra("view", error.name or "jinja2") from error


def _serve(
    place: SessionsAt, sessions: Sequence[str], files: Sequence[Path], *, port: int | None, opens: bool, may_write: bool
) -> None:
    from ctxfs.view.server import ViewServer  # noqa: PLC0415 - its packages are an extra

    comparisons = [file for file in files if is_results(file)]
    recordings = [file for file in files if file not in comparisons]
    path = ""
    if sessions:
        path = f"session/{_found(place, sessions[0])}"
    elif len(files) == 1:
        path = "comparison/0" if comparisons else "recording/0"
    server = ViewServer(
        stores_of(place), port, RecordedFiles(recordings), may_write, comparisons=ComparedFiles(comparisons)
    )
    url = f"{server.url}{path}"
    sys.stderr.write(f"{url}\nOnly this machine can open it. Ctrl+C ends it.\n")
    if opens:
        webbrowser.open(url)
    anyio.run(server.serve)


def _export(place: SessionsAt, sessions: Sequence[str], file: Path, redaction: Redaction) -> None:
    if not sessions:
        raise ConfigError("--export writes the page of one session: name it, or write 'last'")
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"--export {file}: {file.absolute().parent} is not a directory")
    if file.exists():
        raise ConfigError(f"--export {file}: the file already exists: choose another name, or remove it first")
    text = anyio.run(_exported, place, _found(place, sessions[0]), redaction)
    write_private(file, text, new=True)
    to_stderr(f"the page is in {file}: look at it before you send it")


def _found(place: SessionsAt, given: str) -> str:
    with session_or_file(given):
        return anyio.run(find_session, place, given)


async def _exported(place: SessionsAt, session_id: str, redaction: Redaction) -> str:
    from ctxfs.view.export import exported_page  # noqa: PLC0415 - its packages are an extra
    from ctxfs.view.sources import OpenSession  # noqa: PLC0415 - together with that

    opened = await OpenSession(stores_of(place), session_id).open()
    try:
        return await exported_page(opened, redaction)
    finally:
        await opened.close()


def _sessions_and_files(shown: Sequence[str]) -> tuple[Sequence[str], Sequence[Path]]:
    """Split arguments into sessions and files, which exist or have a separator, as no id has."""
    paths = [name for name in shown if Path(name).is_file() or os.sep in name]
    sessions = [name for name in shown if name not in paths]
    if len(sessions) > 1:
        raise ConfigError(f"{', '.join(sessions)} are not files, so name one session: the page lists all of them")
    return sessions, recordings_in([Path(path) for path in paths]) if paths else ()
