"""``ctxfs mcp install`` and ``uninstall``: wrap the MCP servers in a client's configuration, and take that back."""

import os
import sys
import tempfile
from collections.abc import Iterable
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer

from ctxfs.adapters.serve.clients import (
    CLIENTS,
    Client,
    can_be_wrapped,
    client_named,
    file_of,
    with_wrapped,
    without_wrapped,
    wrappable,
)
from ctxfs.cli.options import DryRun, Unasked
from ctxfs.cli.output import confirm, print_line
from ctxfs.errors import ConfigError
from ctxfs.session.content.visible import visible_text as for_terminal

_COPY = ".before-ctxfs"

_ClientName = Annotated[str, typer.Argument(metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}.")]
_File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The configuration, if it is not at the client's usual place, such as a project's .mcp.json.",
        show_default=False,
    ),
]


def install(
    client: _ClientName,
    *,
    server: Annotated[
        list[str] | None,
        typer.Option("--server", metavar="NAME", help="Wrap this server; repeatable.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Wrap all servers that are not wrapped yet.")] = False,
    file: _File = None,
    dry_run: DryRun = False,
    yes: Unasked = False,
) -> None:
    """Wrap the MCP servers of a client, in its configuration.

    The change is shown first. The client then starts each server by `ctxfs mcp wrap`. A copy of the configuration stays
    beside it, and `ctxfs mcp uninstall` restores it. Restart the client afterwards.
    """
    if bool(server) == every:
        raise ConfigError("give mcp install either --server NAME or --all")
    known = client_named(client)
    advice = f"add an MCP server to {known.title} first, or name its configuration with --file"
    path = _path(known, file, advice=advice)
    text = _read(path)
    program = _program()
    parsed = file_of(known, text, path)
    chosen: list[str | None] = [*dict.fromkeys(server or ())] or [None]
    names = [name for one in chosen for name in wrappable(parsed, one)]
    left = [name for name in names if every and not can_be_wrapped(known, parsed.servers[name])]
    for name in left:
        print_line(f"{name} stays as it is: it has neither a command nor a URL for Streamable HTTP")
    names = [name for name in names if name not in left]
    if not names:
        print_line(f"{path}: nothing to wrap")
        return
    copy = _copy_of(path)
    before = without_wrapped(known, text, path, _read(copy) if copy.exists() else None, program)
    new = with_wrapped(known, parsed, names, program)
    if _agreed(path, text, new, dry_run=dry_run, yes=yes):
        _write(copy, before)
        _write(path, new)
        print_line(f"{path}: {', '.join(names)} wrapped; restart {known.title}")
        print_line(f"The copy from before is {copy}: `ctxfs mcp uninstall {client}` restores it")


def uninstall(client: _ClientName, *, file: _File = None, dry_run: DryRun = False, yes: Unasked = False) -> None:
    """Take `ctxfs mcp install` back.

    The configuration becomes what it was, byte for byte. If it was changed since, those changes stay, and only the
    entries of the wrapped servers are restored. The change is shown first.
    """
    known = client_named(client)
    path = _path(known, file, advice="nothing to restore; if its configuration is elsewhere, name it with --file")
    text = _read(path)
    copy = _copy_of(path)
    new = without_wrapped(known, text, path, _read(copy) if copy.exists() else None, _program())
    if new == text:
        print_line(f"{path}: no server is wrapped")
        return
    if _agreed(path, text, new, dry_run=dry_run, yes=yes):
        _write(path, new)
        copy.unlink()
        print_line(f"{path}: restored; restart {known.title}")


def _path(client: Client, file: Path | None, *, advice: str) -> Path:
    """The configuration; where links lead, so that a link stays one. Raises ``ConfigError`` if there is none."""
    places = [Path.home() / place for place in client.places(sys.platform)] if file is None else [file]
    for place in places:
        if place.is_file():
            return place.resolve()
    raise ConfigError(f"there is no {' or '.join(str(place) for place in places)}: {advice}")


def _copy_of(path: Path) -> Path:
    return path.with_name(f"{path.name}{_COPY}")


def _program() -> tuple[str, ...]:
    """How a client starts ctxfs: by its whole path, since a client's PATH is often not the terminal's."""
    beside = Path(sys.executable).with_name("ctxfs.exe" if sys.platform == "win32" else "ctxfs")
    return (str(beside),) if beside.exists() else (sys.executable, "-m", "ctxfs")


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8, so it is left as it is: {error.reason}") from error


def _write(path: Path, text: str) -> None:
    """Replace the file at once, with the permissions that it has; a new one is its owner's only."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as written:
            written.write(text.encode("utf-8"))
            written.flush()
            os.fsync(written.fileno())
        if path.exists():
            Path(name).chmod(path.stat().st_mode & 0o777)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _agreed(path: Path, before: str, after: str, *, dry_run: bool, yes: bool) -> bool:
    """Show the change, and ask; whether it is to be made. Raises ``typer.Abort`` for a no."""
    for line in _difference(path, before, after):
        sys.stdout.write(f"{for_terminal(line)}\n")
    if dry_run:
        return False
    if not yes:
        confirm(f"Change {path}?")
    return True


def _difference(path: Path, before: str, after: str) -> Iterable[str]:
    return unified_diff(before.splitlines(), after.splitlines(), str(path), f"{path}, changed", lineterm="")
