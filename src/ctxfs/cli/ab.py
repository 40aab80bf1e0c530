"""``ctxfs ab TASKS -- COMMAND…``: whether an agent still solves its tasks, and what that costs."""

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer
from anyio import CancelScope, to_thread

from ctxfs.adapters.serve.programs import program_of, told
from ctxfs.cli.lines import to_stderr
from ctxfs.cli.options import AsJson
from ctxfs.cli.output import on_terminal, text_columns, write_private
from ctxfs.cli.proxy import Anthropic, Command, Gemini, OpenAI, ReadingTurns, checked_url, unreached
from ctxfs.errors import ConfigError
from ctxfs.lab.ab.arms import Arm, checked_arms
from ctxfs.lab.ab.directory import SessionDirectory, exit_code
from ctxfs.lab.ab.meter import Meter, Pricing
from ctxfs.lab.ab.render import comparison_html, comparison_json, comparison_markdown
from ctxfs.lab.ab.report import DEFAULT_MARGIN_POINTS
from ctxfs.lab.ab.results import Outcome
from ctxfs.lab.ab.running import Settings, passes, run_sessions
from ctxfs.lab.ab.tasks import Task, read_tasks
from ctxfs.session.content.visible import visible_text as for_terminal

if TYPE_CHECKING:
    from ctxfs.adapters.serve.proxy import Proxy

_NOT_MET = 1
_NOTHING_PLAYED = 1
_PROMPT = "{prompt}"
_SAID_BYTES = 300
"""How much of the end of what a program printed is looked at for a note."""

Tasks = Annotated[
    Path,
    typer.Argument(metavar="TASKS", help="A file with one JSON object a line: id, prompt, check; more in the docs."),
]
Arms = Annotated[
    str,
    typer.Option(
        "--arms",
        metavar="NAMES",
        help="What to compare, the first with the others: none, default, whole, exact:N, clear:N.",
    ),
]
ResultsFile = Annotated[
    Path | None,
    typer.Option(
        "--results",
        metavar="FILE",
        help="Where results are kept; the same file goes on (default: beside TASKS, as NAME.results.jsonl).",
        show_default=False,
    ),
]
BudgetUsd = Annotated[
    float | None,
    typer.Option("--budget", min=0, metavar="USD", help="Dollars that are never exceeded (default: no limit)."),
]
SessionUsd = Annotated[
    float | None,
    typer.Option("--session-budget", min=0, metavar="USD", help="Dollars of one session; one that wants more fails."),
]
Margin = Annotated[
    float | None,
    typer.Option(
        "--margin", min=0, metavar="POINTS", help="Exit with 1 unless it is shown that no arm is worse by more points."
    ),
]
Repeats = Annotated[
    int, typer.Option("--repeats", min=1, metavar="N", help="How often each task is played in each arm.")
]
Parallel = Annotated[int, typer.Option("--parallel", min=1, metavar="N", help="How many pairs at a time.")]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of the random order.")]
PricedAs = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="Count dollars by this model's list prices.", show_default=False),
]
ReplyTokens = Annotated[
    int | None,
    typer.Option(
        "--reply-tokens",
        min=1,
        metavar="N",
        help="The longest reply to a request that sets no limit, for the budget (default: what the model can write).",
        show_default=False,
    ),
]
Keep = Annotated[
    Path | None,
    typer.Option(
        "--keep",
        metavar="DIR",
        help="Keep each session's files and output here (default: removed).",
        show_default=False,
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="OUT", help="Write a page with all sessions too.", show_default=False),
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the result as Markdown.")]


def ab(
    tasks: Tasks,
    command: Command,
    *,
    arms: Arms = "none,default",
    reading_turns: ReadingTurns = 0,
    results: ResultsFile = None,
    budget: BudgetUsd = None,
    session_budget: SessionUsd = None,
    margin: Margin = None,
    repeats: Repeats = 1,
    parallel: Parallel = 1,
    seed: Seed = 0,
    model: PricedAs = None,
    reply_tokens: ReplyTokens = None,
    keep: Keep = None,
    html: Html = None,
    markdown: Markdown = False,
    upstream_anthropic: Anthropic = None,
    upstream_openai: OpenAI = None,
    upstream_gemini: Gemini = None,
    as_json: AsJson = False,
) -> None:
    """Compare contexts on your tasks: solved, and the cost.

    An arm is what is done to an agent's context. COMMAND is run once for each task and arm, through a proxy on this
    machine. It works in a copy of the task's directory, and gets the prompt for {prompt}, or on standard input. The
    same command goes on after Ctrl-C. Needs the extra ctxfs[proxy].
    """
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError(f"--html {html}: {html.absolute().parent} is not a directory")
    read = read_tasks(tasks)
    for task in read:
        if task.check is None:
            raise ConfigError(f"task {task.id} has no check")
    settings = Settings(
        results=results or tasks.with_name(f"{tasks.stem}.results.jsonl"),
        repeats=repeats,
        seed=seed,
        parallel=parallel,
        budget_usd=budget,
        session_usd=session_budget,
        pricing=Pricing(model=model, reply_tokens=reply_tokens),
        keep=keep,
    )
    if os.sep not in command[0] and shutil.which(command[0]) is None:
        raise ConfigError(f"{command[0]} cannot be run: there is no such program")
    given = {"anthropic": upstream_anthropic, "openai": upstream_openai, "gemini": upstream_gemini}
    upstreams = {name: checked_url(url) for name, url in given.items() if url is not None}
    # Here, since it needs the extra `proxy`, and the help does not.
    from ctxfs.adapters.serve.proxy import Proxy  # noqa: PLC0415

    play = _Program(tuple(command), upstreams, reading_turns, Proxy)
    identity = _identity(command, reading_turns)
    compared = partial(run_sessions, read, checked_arms(arms.split(",")), play, settings, command=identity)
    comparison = anyio.run(compared)
    shown = DEFAULT_MARGIN_POINTS if margin is None else margin
    if html is not None:
        write_private(html, comparison_html(comparison, shown))
        to_stderr(f"the page is in {html}")
    if as_json:
        text = comparison_json(comparison, shown)
    elif markdown:
        text = comparison_markdown(comparison, shown)
    else:
        text = comparison.text(shown, width=text_columns())
    sys.stdout.write(for_terminal(text) if on_terminal() else text)
    if not comparison.counted and any(one.outcome == "failed" for one in comparison.sessions):
        raise typer.Exit(_NOTHING_PLAYED)
    if margin is not None and not comparison.meets(margin):
        raise typer.Exit(_NOT_MET)


@dataclass(frozen=True, slots=True)
class _Program:
    """Plays a session by running a program behind a proxy of its own."""

    command: tuple[str, ...]
    upstreams: Mapping[str, str]
    reading_turns: int
    proxy: "type[Proxy]"

    async def __call__(self, task: Task, arm: Arm, meter: Meter, directory: SessionDirectory) -> tuple[Outcome, str]:
        """Run it to its end, and ask the task's check, whatever its exit code is."""
        proxy = self.proxy(
            directory.stored,
            {"read_tool": program_of(self.command).read_tool, **arm.settings},
            self.upstreams,
            each_tool_keeps=arm.each_tool_keeps,
            reading_turns=self.reading_turns if arm.can_read_back else 0,
            meter=meter,
        )
        await to_thread.run_sync(proxy.__enter__)
        try:
            env = {**os.environ, **proxy.environment}
            command = told(self.command, proxy.environment, directory.stored)
            words, stdin = _with_prompt(command, task.prompt)
            output = directory.path / "output.txt"
            code = await exit_code(
                words, cwd=directory.work, env=env, stdin=stdin, output=output, timeout_s=task.timeout_s
            )
        except OSError as error:
            raise ConfigError(f"{self.command[0]} cannot be run: {error.strerror}") from error
        finally:
            with CancelScope(shield=True):
                await to_thread.run_sync(proxy.__exit__, None, None, None)
        meter.replaced = proxy.savings.replaced
        ended = await to_thread.run_sync(_said, code, output)
        if not proxy.requests:
            return "failed", f"{ended}. {unreached(code)}" if code else unreached(0)
        if code is None:
            return "timeout", f"after {task.timeout_s:g} s"
        assert isinstance(task.check, tuple)
        if await passes(task, task.check, directory.work):
            return "solved", ""
        if code:
            return "crashed", ended
        return "unsolved", ""


def _said(code: int | None, output: Path) -> str:
    """How a program ended, with the last line that it printed."""
    ended = f"Exit code {code}"
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - _SAID_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{ended}: {last}" if last else ended


def _with_prompt(command: Sequence[str], prompt: str) -> tuple[list[str], bytes]:
    """The words of the command with the prompt in them; if it does not ask for it, what it reads instead."""
    if any(_PROMPT in word for word in command):
        return [word.replace(_PROMPT, prompt) for word in command], b""
    return list(command), prompt.encode()


def _identity(command: Sequence[str], reading_turns: int) -> str:
    """What must be the same for a comparison to go on."""
    words = [*command, f"reading turns: {reading_turns}"] if reading_turns else command
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
