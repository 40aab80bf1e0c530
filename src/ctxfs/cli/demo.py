"""``ctxfs demo``: an agent explores a directory, without a key, and a table shows what its context holds."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ctxfs.agent.agent import Agent
from ctxfs.agent.config import AgentConfig
from ctxfs.agent.events import AgentEvent, Done, ToolStarted, UsageReported
from ctxfs.cli.explore import exploration_tools
from ctxfs.cli.explorer import Explorer
from ctxfs.cli.options import STORE_VARIABLE, AsJson, Root
from ctxfs.cli.output import console, print_json, table
from ctxfs.errors import ConfigError, OutcomeUnknown, StorageError, Unrecorded
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.events import Evicted, OffloadFailed, RecordFailed
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.messages import ToolCall
from ctxfs.session.content.visible import visible_text as for_terminal
from ctxfs.session.timeline.costs import account
from ctxfs.session.timeline.effect import Effect, effect
from ctxfs.session.verify import VerifyReport
from ctxfs.storage.roots import absolute_root
from ctxfs.testing.scripted import ScriptedModel
from ctxfs.tools.base import Tool

_MAX_TURNS = 24
_CPU_S = 20.0
"""It explores no further after this much CPU time; a busy machine shows the same, but takes longer."""
_WINDOW_TOKENS = 1_000_000
"""The window is never full here: items are evicted because newer results came."""
_TASK = "Find your way around this directory: what is in it, and where would a newcomer start?"
_SYSTEM_PROMPT = (
    "You explore a directory with list_dir, read_file and search. Results that are no longer new leave your context "
    "for files; Read shows them again."
)
_BAR_COLUMNS = 20
_WIDE_COLUMNS = 100
_BAR_FROM_COLUMNS = 120
_FILE_FROM_COLUMNS = 140
_ARGUMENT_CHARS = 28
_NARROW_ARGUMENT_CHARS = 14
_FRAME_LINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One turn. Tokens are what the context holds after the reply; ``without`` is the same transcript, nothing evicted.

    A read-back is not in ``without``: there, nothing would have to be read back.
    """

    turn: int
    tokens: int
    without: int
    evicted: tuple[Evicted, ...] = ()
    calls: tuple[ToolCall, ...] = ()


@dataclass(slots=True)
class _Run:
    """The run of the demo so far."""

    rows: list[Row] = field(default_factory=list)
    pending: list[Evicted] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    answer: str = ""


def demo(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The directory to explore; it is only read.")
    ] = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Watch an agent explore a directory; needs no key.

    A table shows what is evicted from its context, and where it goes.

    The model is a script; everything else is real: the tools, the files, the session on disk and the figures. What the
    tools show of DIR is stored in the session, which only you can read; `ctxfs forget` removes it.
    """
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory")
    out = Console(stderr=True, quiet=True) if as_json else console()
    directory = directory.resolve()
    tools = exploration_tools(directory)  # reads the disk, so it must not run in the event loop
    try:
        in_order = anyio.run(partial(_demo, directory, tools, root, out, again=_again(root), as_json=as_json))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what the session holds is safe: `ctxfs sessions` shows it\n")
        raise
    if not in_order:
        raise typer.Exit(1)


async def _demo(
    directory: Path, tools: list[Tool], root: Path | None, out: Console, *, again: tuple[str, str], as_json: bool
) -> bool:
    """Run the agent and show it; return whether everything was stored, and is as it was written."""
    started, computed = time.monotonic(), time.process_time()
    explorer = Explorer(max_turns=_MAX_TURNS, in_time=lambda: time.process_time() - computed < _CPU_S)
    config = AgentConfig(
        tools=tools,
        system_prompt=_SYSTEM_PROMPT,
        offload_root_path=root,
        max_turns=_MAX_TURNS,
        budget=Budget(window_tokens=_WINDOW_TOKENS),
    )
    agent = Agent(ScriptedModel([explorer.turn] * _MAX_TURNS), config)
    run = _Run()
    where = agent.context.fs.base
    measured = False
    try:
        async with agent:
            out.print(f"An agent explores {for_terminal(str(directory))}; its session is {where}\n", soft_wrap=True)
            with Live(console=out, transient=True, auto_refresh=False) as live:
                await _watch(agent, run, lambda: live.update(_frame(run.rows, out), refresh=True))
            report = await agent.context.fs.verify()
            did = effect(account(await agent.context.fs.history()), agent.context.fs.state.eviction)
            stored_bytes = sum(s.size_bytes for s in agent.context.fs.state.stored.values())
            measured = True
    except StorageError as error:
        if not measured:
            raise
        run.failures.append(str(error))  # only closing failed: the figures are still right
    seconds = time.monotonic() - started
    if as_json:
        print_json(_as_dict(agent, run, report, seconds))
    else:
        out.print(_table(run.rows, wide=out.width))
        out.print(_figures(run, report, did, stored_bytes=stored_bytes, seconds=seconds))
        out.print(_next_steps(agent, run, again), soft_wrap=True)
    return report.ok and not run.failures


async def _watch(agent: Agent, run: _Run, show: Callable[[], None]) -> None:
    try:
        async with aclosing(agent.stream(_TASK)) as events:
            async for event in events:
                if _take(run, event, agent):
                    show()
    except (Unrecorded, OutcomeUnknown) as error:  # the run ends here, and the figures are those of what was
        run.failures.append(str(error))


def _take(run: _Run, event: AgentEvent, agent: Agent) -> bool:
    """Add an event to the run; return whether there is something new to show."""
    match event:
        case Evicted():
            run.pending.append(event)
            return False
        case OffloadFailed() | RecordFailed():
            run.failures.append(str(event.error))
            return False
        case UsageReported():
            without = sum(i.content_tokens for i in agent.context.items if i.source is None)
            row = Row(turn=len(run.rows) + 1, tokens=event.context_tokens, without=without, evicted=tuple(run.pending))
            run.rows.append(row)
            run.pending.clear()
        case ToolStarted():
            run.rows[-1] = replace(run.rows[-1], calls=(*run.rows[-1].calls, event.call))
        case Done():
            run.answer = event.text
        case _:
            return False
    return True


# What is shown --------------------------------------------------------------------------------------------------------


def _frame(rows: Sequence[Row], out: Console) -> Table:
    """The last rows, as many as are sure to fit the screen."""
    lines = 0
    shown: list[Row] = []
    for row in reversed(rows):
        lines += max(1, len(row.calls), len(row.evicted))
        if lines > max(1, out.height - _FRAME_LINES) and shown:
            break
        shown.insert(0, row)
    return _table(shown, wide=out.width, scale=max((row.without for row in rows), default=1))


def _table(rows: Sequence[Row], *, wide: int, scale: int | None = None) -> Table:
    scale = scale or max((row.without for row in rows), default=1)
    made = table()
    made.add_column("turn", justify="right", min_width=4)
    made.add_column("the model asks for", no_wrap=True)
    made.add_column("with", justify="right", min_width=7)
    made.add_column("without", justify="right", min_width=7)
    if wide >= _BAR_FROM_COLUMNS:
        made.add_column(Text.assemble(("█", "green"), " with  ", ("░", "dim"), " without"), no_wrap=True)
    made.add_column("left before this turn", no_wrap=True)
    for row in rows:
        cells: list[Any] = [str(row.turn), _calls(row, wide=wide), f"{row.tokens:,}", f"{row.without:,}"]
        if wide >= _BAR_FROM_COLUMNS:
            cells.append(_bar(row, scale))
        made.add_row(*cells, _left(row, wide=wide))
    return made


def _calls(row: Row, *, wide: int) -> Text:
    chars = _ARGUMENT_CHARS if wide >= _WIDE_COLUMNS else _NARROW_ARGUMENT_CHARS
    lines = [_call(call, chars) for call in row.calls]
    return Text("\n").join(lines) if lines else Text("nothing: it answers", style="italic")


def _call(call: ToolCall, chars: int) -> Text:
    argument = for_terminal(str(next(iter(call.arguments.values()), "")).replace("\n", " "))
    if call.name == "Read":
        argument = Path(argument).name
    if len(argument) > chars:
        argument = "…" + argument[1 - chars :]
    return Text.assemble((call.name, "cyan" if call.name != "Read" else "bold magenta"), " ", argument)


def _bar(row: Row, scale: int) -> Text:
    held = round(_BAR_COLUMNS * row.tokens / scale)
    more = max(0, round(_BAR_COLUMNS * row.without / scale) - held)
    return Text.assemble(("█" * held, "green"), ("░" * more, "dim"))


def _left(row: Row, *, wide: int) -> Text:
    """What was evicted before this turn: tokens before and after, and its file, or only its id if there is no room."""
    lines = [
        Text(f"{e.tokens_before:>6,} → {e.tokens_after:>3,} {e.item_id if wide < _FILE_FROM_COLUMNS else _file(e)}")
        for e in row.evicted
    ]
    return Text("\n").join(lines)


def _file(event: Evicted) -> str:
    path = Path(event.path)
    return f"{path.parent.name}/{path.name}"


def _figures(run: _Run, report: VerifyReport, did: Effect, *, stored_bytes: int, seconds: float) -> Group:
    last, peak = run.rows[-1], max(row.tokens for row in run.rows)
    sent, sent_without = sum(row.tokens for row in run.rows), sum(row.without for row in run.rows)
    less = "less" if did.net >= 0 else "more"
    lines = [
        Text(f"\n“{run.answer}”\n", style="italic"),
        Text.assemble(
            "The context ends with ",
            (f"{last.tokens:,} tokens", "bold green"),
            f" (at most {peak:,}); without ctxfs it would hold ",
            (f"{last.without:,}", "bold"),
            f". Over {len(run.rows)} calls: {sent:,} tokens, without {sent_without:,}",
            f" ({_percent(sent, sent_without)}).",
        ),
        Text(
            f"Results that left: {did.evictions}, freeing {did.tokens_freed:,} tokens. {_stored(report, stored_bytes)}."
        ),
        Text(
            f"With a prompt cache, where a token that is read again costs a tenth, it cost about {abs(did.net):,.0f} "
            f"input tokens {less} than without ctxfs."
        ),
        *(Text(for_terminal(failure), style="red") for failure in dict.fromkeys(run.failures)),
        Text(f"It took {seconds:.1f} s. What the cache has to do with it: docs/economics.md.", style="dim"),
    ]
    return Group(*lines)


def _next_steps(agent: Agent, run: _Run, again: tuple[str, str]) -> Group:
    program, option = again
    left = [event.item_id for row in run.rows for event in row.evicted]
    commands = [
        f"explain last {left[0]}" if left else "explain last",
        f"cat last {left[0]} --lines 1:20" if left else "ls last",
        "forget last",
    ]
    lines = [f"{program} {command}{option}" for command in commands]
    return Group(Text(f"\nsession   {agent.context.fs.base}"), Text("next      " + "\n          ".join(lines)))


def _again(root: Path | None) -> tuple[str, str]:
    """How to look at the session afterwards: the program, by its name if it is on the PATH, and the last option."""
    started = Path(sys.argv[0])
    program = "ctxfs" if shutil.which("ctxfs") or started.name != "ctxfs" else shlex.quote(str(started))
    if root is None and STORE_VARIABLE in os.environ:
        root = absolute_root(None)  # the session is there, whatever the store
    return program, "" if root is None else f" --root {shlex.quote(str(root))}"


def _stored(report: VerifyReport, stored_bytes: int) -> str:
    if not report.ok:
        return f"{plural(len(report.problems), 'problem')} with stored contents: see `ctxfs check last`"
    stored = f"{plural(report.checked, 'content')}, {stored_bytes:,} bytes"
    return f"All that is stored ({stored}) was read back and is as written"


def _percent(part: int, whole: int) -> str:
    change = round(100 * (part - whole) / whole) if whole else 0
    return f"{change:+d} %" if change else "the same"


def _as_dict(agent: Agent, run: _Run, report: VerifyReport, seconds: float) -> dict[str, Any]:
    return {
        "session_id": agent.session_id,
        "path": str(agent.context.fs.base),
        "answer": run.answer,
        "seconds": round(seconds, 2),
        "ok": report.ok,
        "checked": report.checked,
        "failures": run.failures,
        "turns": [
            {
                "turn": row.turn,
                "tokens": row.tokens,
                "tokens_without": row.without,
                "calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in row.calls],
                "left": [
                    {
                        "item_id": event.item_id,
                        "path": event.path,
                        "tokens_before": event.tokens_before,
                        "tokens_after": event.tokens_after,
                        "reason": event.reason,
                    }
                    for event in row.evicted
                ],
            }
            for row in run.rows
        ],
    }
