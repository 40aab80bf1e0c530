"""``ctxfs replay`` and ``ctxfs tune``: recorded sessions under eviction policies, without a model."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ctxfs.cli.options import AsJson
from ctxfs.cli.output import console, for_terminal, on_terminal, write_private
from ctxfs.errors import ConfigError
from ctxfs.models.prices import CacheTtl
from ctxfs.recordings.discover import default_folders, recordings_in
from ctxfs.replay import lab
from ctxfs.replay.answer import render_text
from ctxfs.replay.cost import Cached
from ctxfs.replay.html import render_html
from ctxfs.replay.render import render_json, render_table, render_tuned
from ctxfs.replay.report import Skipped
from ctxfs.replay.tariff import PriceOptions, parse_rates
from ctxfs.replay.tune import tune_files

__all__ = ["replay", "tune"]

_NAMED = 5
"""The most left-out files that are named."""

_Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH",
        help="Recorded sessions, and folders of them (default: those that agents keep on this machine).",
        show_default=False,
    ),
]
_Tokens = Annotated[lab.Tokens, typer.Option("--tokens", help="How tokens are counted: exactly, or as characters / 4.")]
_Model = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="Use this model's list prices.", show_default=False)
]
_Rates = Annotated[
    str | None,
    typer.Option(
        "--rates",
        metavar="R,W,O[,USD]",
        help="Take these prices: cache read, cache write and output, each as a multiple of an uncached input token; "
        "and the dollars of a million of those.",
        show_default=False,
    ),
]
_Ttl = Annotated[
    CacheTtl | None,
    typer.Option("--ttl", help="How long the cache is kept, if the provider offers this time.", show_default=False),
]


def replay(
    paths: _Files = None,
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="A policy, or a TOML file of parameters. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    model: _Model = None,
    rates: _Rates = None,
    ttl: _Ttl = None,
    tokens: _Tokens = "o200k",
    cached: Annotated[
        Cached,
        typer.Option(
            "--cached",
            help="What the cache gives back: any unchanged prefix, only up to earlier requests' ends, or only near the "
            "last one's.",
        ),
    ] = "prefix",
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="OUT", help="Write a report with charts to this file too.", show_default=False),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the policies as a Markdown table.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what recorded sessions cost, and what they would have cost with ctxfs.

    They are replayed under eviction policies, without a model. Without PATH, the sessions that Claude Code, Codex,
    Gemini CLI, Copilot CLI and pi recorded on this machine are replayed.
    """
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError(f"--html {html}: {html.absolute().parent} is not a directory")
    prices = _prices(model, rates, ttl)
    files = _found(paths)
    with _progress("replaying", len(files)) as progress:
        report = lab.replay_files(files, policy or (), tokens, prices=prices, cached=cached, progress=progress)
    _report_left_out("without a reply of a model", [str(path) for path in report.left_out])
    _report_skipped(report.skipped)
    if html is not None:
        write_private(html, render_html(report))
        sys.stderr.write(for_terminal(f"the report is in {html}\n"))
    if as_json:
        _print(f"{render_json(report)}\n")
    else:
        _print(render_table(report) if markdown else render_text(report, width=min(console().width, 100)))


def tune(
    paths: _Files = None,
    *,
    model: _Model = None,
    rates: _Rates = None,
    ttl: _Ttl = None,
    tokens: _Tokens = "o200k",
    as_json: AsJson = False,
) -> None:
    """Find eviction parameters on recorded sessions.

    Parameters are found on some of the sessions and judged on the others. They are printed as TOML for `ctxfs replay
    --policy FILE.toml`. Without PATH, the sessions that agents recorded on this machine are used.
    """
    prices = _prices(model, rates, ttl)
    files = _found(paths)
    with _progress("tuning", len(files)) as progress:
        tuned = tune_files(files, tokens, prices=prices, progress=progress)
    _report_skipped(tuned.skipped)
    _print(render_tuned(tuned) if as_json else tuned.to_toml())


def _prices(model: str | None, rates: str | None, ttl: CacheTtl | None) -> PriceOptions:
    given, usd = parse_rates(rates) if rates is not None else (None, None)
    return PriceOptions(model=model, rates=given, usd_per_million=usd, ttl=ttl)


def _found(paths: Sequence[Path] | None) -> tuple[Path, ...]:
    """The files to replay.

    Raises:
        ConfigError: there are none.
    """
    folders = tuple(paths) if paths else default_folders()
    if not folders:
        raise ConfigError(
            "no sessions of Claude Code, Codex, Gemini CLI, Copilot CLI or pi in their folders: name files"
        )
    return recordings_in(folders)


def _report_left_out(why: str, names: Sequence[str]) -> None:
    if names:
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        sys.stderr.write(for_terminal(f"left out, {why}: {', '.join(names[:_NAMED])}{more}\n"))


def _report_skipped(skipped: Sequence[Skipped]) -> None:
    for file in skipped[:_NAMED]:
        why, _, _ = file.why.partition("; expected ")
        sys.stderr.write(for_terminal(f"skipped {why}\n"))
    if len(skipped) > _NAMED:
        sys.stderr.write(f"skipped {len(skipped) - _NAMED:,} more: --json names them\n")


def _print(text: str) -> None:
    sys.stdout.write(for_terminal(text) if on_terminal() else text)


@contextmanager
def _progress(what: str, files: int) -> Iterator[lab.Progress]:
    """A bar on stderr that counts files, when that is a terminal."""
    out = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("files"), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as shown:
        task = shown.add_task(what, total=files)
        try:
            yield lambda done, _total: shown.update(task, completed=done)
        except BrokenProcessPool as error:
            raise ConfigError("a worker process was killed, so memory may be short: try fewer sessions") from error
