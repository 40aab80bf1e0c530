"""``ctxfs replay`` and ``ctxfs tune``: recorded sessions under eviction policies, without a model."""

import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ctxfs.cli.options import AsJson
from ctxfs.cli.output import for_terminal
from ctxfs.errors import ConfigError
from ctxfs.replay import lab
from ctxfs.replay.cost import Cached
from ctxfs.replay.html import render_html
from ctxfs.replay.render import render_json, render_table
from ctxfs.replay.tune import tune_files

__all__ = ["replay", "tune"]

_Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Recorded sessions, in any format that ctxfs reads.",
        show_default=False,
    ),
]
_Tokens = Annotated[lab.Tokens, typer.Option("--tokens", help="How tokens are counted: exactly, or as characters / 4.")]


def replay(  # noqa: PLR0917 - typer calls it by name
    files: _Files,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="A policy, or a TOML file of parameters. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    tokens: _Tokens = "o200k",
    cached: Annotated[
        Cached,
        typer.Option(
            "--cached", help="What the cache gives back: any unchanged prefix, or only up to earlier requests' ends."
        ),
    ] = "prefix",
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="OUT", help="Write a report with charts to this file too.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay recorded sessions under eviction policies.

    Needs no model. Prints what each policy would have cost, relative to never evicting.
    """
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError(f"--html {html}: {html.absolute().parent} is not a directory")
    with _progress("replaying", len(files)) as progress:
        report = lab.replay_files(files, policy or (), tokens, cached=cached, progress=progress)
    if report.left_out:
        names = ", ".join(map(str, report.left_out))
        sys.stderr.write(for_terminal(f"left out, with no reply of a model in them: {names}\n"))
    if html is not None:
        html.write_text(render_html(report), encoding="utf-8")
        sys.stderr.write(for_terminal(f"the report is in {html}\n"))
    _print(f"{render_json(report)}\n" if as_json else render_table(report))


def tune(files: _Files, tokens: _Tokens = "o200k") -> None:
    """Find eviction parameters on recorded sessions.

    They are judged on the other sessions, and printed as TOML for `ctxfs replay --policy FILE.toml`.
    """
    with _progress("tuning", len(files)) as progress:
        tuned = tune_files(files, tokens, progress=progress)
    _print(tuned.to_toml())


def _print(text: str) -> None:
    sys.stdout.write(for_terminal(text) if sys.stdout.isatty() else text)


@contextmanager
def _progress(what: str, files: int) -> Iterator[lab.Progress]:
    """A bar on stderr that counts files, when that is a terminal."""
    out = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("sessions"), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as shown:
        task = shown.add_task(what, total=files)
        try:
            yield lambda done, _total: shown.update(task, completed=done)
        except BrokenProcessPool as error:
            raise ConfigError("a worker process was killed, so memory may be short: try fewer sessions") from error
