"""``ctxfs replay``: recorded sessions under eviction policies, without a model."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ctxfs.cli.lines import to_stderr
from ctxfs.cli.options import AsJson
from ctxfs.cli.output import on_terminal, text_columns, write_private
from ctxfs.errors import ConfigError
from ctxfs.lab.recordings.discover import default_places, recordings_in
from ctxfs.lab.replay import lab
from ctxfs.lab.replay.answer import render_text
from ctxfs.lab.replay.cost import Cached
from ctxfs.lab.replay.html import render_html
from ctxfs.lab.replay.policies import LAB_POLICIES
from ctxfs.lab.replay.render import render_json, render_table, render_tuned
from ctxfs.lab.replay.report import Skipped
from ctxfs.lab.replay.tariff import PriceOptions, parse_rates
from ctxfs.lab.replay.tune import tune_files
from ctxfs.messages.models.prices import CacheTtl
from ctxfs.session.content.visible import visible_text as for_terminal

_NAMED = 2
"""The most files that are named for each reason why they are skipped, so that the line stays one."""

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
    policies: Annotated[
        bool, typer.Option("--policies", help="Compare with what frameworks and providers do, in a table.")
    ] = False,
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
    tune: Annotated[
        bool, typer.Option("--tune", help="Count read-backs instead, and print parameters as TOML for --policy.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what recorded sessions cost, and would with ctxfs.

    They are replayed without a model. One sentence says what was paid and what it would have been, and a table says who
    gains and who does not. Without PATH, the sessions that Claude Code, Codex, Gemini CLI, Copilot CLI, pi and
    opencode recorded on this machine are replayed.
    """
    if tune and (policy or policies or html is not None or markdown or cached != "prefix"):
        raise ConfigError(
            "--tune compares no policies: leave out --policy, --policies, --cached, --html and --markdown"
        )
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError(f"--html {html}: {html.absolute().parent} is not a directory")
    prices = _prices(model, rates, ttl)
    files = _found(paths)
    if tune:
        _tune(files, tokens, prices, as_json=as_json)
        return
    with _progress("replaying", len(files)) as progress:
        asked = [*(LAB_POLICIES if policies else ()), *(policy or ())]
        report = lab.replay_files(
            files, tuple(dict.fromkeys(asked)), tokens, prices=prices, cached=cached, progress=progress
        )
    _report_skipped(report.skipped, report.left_out)
    if html is not None:
        write_private(html, render_html(report))
        to_stderr(f"the report is in {html}")
    if as_json:
        _print(f"{render_json(report)}\n")
    else:
        _print(render_table(report) if markdown else render_text(report, width=text_columns()))


def _tune(files: Sequence[Path], tokens: lab.Tokens, prices: PriceOptions, *, as_json: bool) -> None:
    """Count read-backs on some of the sessions, and what they cost on the others, and print them."""
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
    places = tuple(paths) if paths else default_places()
    if not places:
        raise ConfigError(
            "Claude Code, Codex, Gemini CLI, Copilot CLI, pi and opencode keep no sessions on this machine: name files"
        )
    return recordings_in(places)


def _report_skipped(skipped: Sequence[Skipped], left_out: Sequence[Path] = ()) -> None:
    """Name the files that were not replayed: a line for each reason."""
    reasons: dict[str, list[Path]] = {}
    for path in left_out:
        reasons.setdefault("no reply of a model", []).append(path)
    for file in skipped:
        reason, _, _ = file.why.removeprefix(f"{file.path}: ").partition("; expected ")
        reasons.setdefault(reason, []).append(file.path)
    for reason, paths in reasons.items():
        if len(paths) > _NAMED:
            told = f"{', '.join(path.name for path in paths[:_NAMED])} and {len(paths) - _NAMED:,} more"
        else:
            told = ", ".join(str(path) for path in paths)
        to_stderr(f"skipped, {reason}: {told}")


def _print(text: str) -> None:
    sys.stdout.write(for_terminal(text) if on_terminal() else text)


@contextmanager
def _progress(what: str, files: int) -> Iterator[lab.Progress]:
    """A bar on stderr that counts files, when that is a terminal."""
    out = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("files"), TimeElapsedColumn())
    # The largest files come first, so the bar only moves to and fro until one is done.
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as shown:
        task = shown.add_task(what, total=None)
        try:
            yield lambda done, _total: shown.update(task, completed=done, total=files)
        except BrokenProcessPool as error:
            raise ConfigError("a worker process was killed, so memory may be short: try fewer sessions") from error
