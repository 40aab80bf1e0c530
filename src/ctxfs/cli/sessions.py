"""Commands about sessions as a whole: sessions, verify and rm."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.options import AsJson, Root, SessionArgument
from ctxfs.cli.output import console, for_terminal, label, print_json, table, tokens
from ctxfs.cli.session import changes, damages, find_session, open_known_session, open_session, sessions_directory
from ctxfs.errors import CtxfsError
from ctxfs.session.filesystem import remove_session
from ctxfs.storage.threads import without_threads

__all__ = ["rm", "sessions", "verify"]


def sessions(root: Root = None, as_json: AsJson = False) -> None:
    """List the sessions, newest first."""
    directory = sessions_directory(root)
    found = anyio.run(_summaries, directory)
    if as_json:
        print_json(found)
        return
    if not found:
        sys.stderr.write(f"no sessions under {directory}: `ctxfs demo` makes one\n")
        return
    listed = table(
        "session", "last change", "calls", "items", "context", "stored", right=("calls", "items", "context", "stored")
    )
    for session in found:
        changed = datetime.fromisoformat(session["changed_at"]).astimezone().strftime("%Y-%m-%d %H:%M")
        if session["error"] is not None:
            listed.add_row(session["session_id"], changed)
            continue
        listed.add_row(
            session["session_id"],
            changed,
            tokens(session["calls"]),
            tokens(session["items"]),
            f"{session['context_tokens']:,} tokens",
            f"{session['stored']:,} ({_size(session['stored_bytes'])})",
        )
    console().print(listed)
    for session in found:
        if session["error"] is not None:
            console().print(label(f"{session['session_id']}: {session['error']}", "red"), soft_wrap=True)
        elif session["damages"]:
            found_here = f"{session['session_id']} has {len(session['damages'])} damages: `ctxfs ls` lists them"
            console().print(label(found_here, "red"), soft_wrap=True)


async def _summaries(root: Path) -> list[dict[str, Any]]:
    with without_threads():
        return [
            await _summary(root, session_id, changed_at) for session_id, changed_at in (await changes(root)).items()
        ]


async def _summary(root: Path, session_id: str, changed_at: float) -> dict[str, Any]:
    changed = datetime.fromtimestamp(changed_at, UTC)
    summary: dict[str, Any] = {
        "session_id": session_id,
        "path": str(root / session_id),
        "changed_at": changed.isoformat(timespec="seconds"),
        "error": None,
    }
    try:
        async with open_known_session(root, session_id) as fs:
            held = await fs.items()
            stored = fs.stored().values()
            return summary | {
                "calls": len(fs.calls),
                "items": len(held),
                "context_tokens": sum(item.token_count for item in held),
                "content_tokens": sum(item.content_tokens for item in held),
                "stored": len(stored),
                "stored_bytes": sum(s.size_bytes for s in stored),
                "damages": damages(fs),
            }
    except CtxfsError as error:  # one damaged session must not hide the others
        return summary | {"error": str(error)}


def verify(session: SessionArgument, root: Root = None, as_json: AsJson = False) -> None:
    """Check every stored byte against its checksum.

    Also checks the index against the journal. Exit code 1 if a check fails.
    """
    if not anyio.run(_verify, sessions_directory(root), session, as_json):
        raise typer.Exit(1)


async def _verify(root: Path, session: str, as_json: bool) -> bool:
    async with open_session(root, session) as fs:
        report = await fs.verify()
        if as_json:
            problems = [{"name": p.name, "detail": p.detail} for p in report.problems]
            print_json({"session_id": fs.session_id, "ok": report.ok, "checked": report.checked, "problems": problems})
            return report.ok
        for problem in report.problems:
            sys.stdout.write(for_terminal(f"{problem.name}: {problem.detail}\n"))
        size = sum(s.size_bytes for s in fs.stored().values())
        verdict = "all as written" if report.ok else f"{len(report.problems)} problems"
        sys.stdout.write(f"{fs.session_id}: {report.checked:,} contents ({_size(size)}) checked, {verdict}\n")
        return report.ok


def rm(
    session: SessionArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    root: Root = None,
) -> None:
    """Remove a session with everything that it stored. It asks first."""
    directory = sessions_directory(root)
    session_id = anyio.run(find_session, directory, session)
    if not yes:
        typer.confirm(f"Remove {directory / session_id} and everything in it?", abort=True)
    anyio.run(remove_session, directory, session_id)


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("bytes", "KB", "MB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GB"
