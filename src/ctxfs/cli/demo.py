"""``ctxfs demo``: an agent mends a bug in a small project, without a key, and it is shown what left its context."""

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import anyio
import typer
from pydantic import Field
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ctxfs.agent.agent import Agent
from ctxfs.agent.config import AgentConfig
from ctxfs.agent.events import AgentEvent, Done, ToolStarted, UsageReported
from ctxfs.cli.demo_script import SYSTEM_PROMPT, TASK, turns
from ctxfs.cli.explore import exploration_tools
from ctxfs.cli.lines import CUT
from ctxfs.cli.options import STORE_VARIABLE, AsJson, Root
from ctxfs.cli.output import console, in_columns, print_json
from ctxfs.errors import OutcomeUnknown, StorageError, Unrecorded
from ctxfs.eviction.events import Evicted, OffloadFailed, RecordFailed
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.eviction.preview import PREVIEWED
from ctxfs.messages.items import unevicted_tokens
from ctxfs.messages.messages import ToolCall
from ctxfs.session.content.visible import visible_text as for_terminal
from ctxfs.session.timeline.costs import Account, account
from ctxfs.session.timeline.effect import DEFAULT_RULES, Effect, Paid, effect
from ctxfs.session.verify import VerifyReport
from ctxfs.storage.roots import absolute_root
from ctxfs.testing.scripted import ScriptedModel
from ctxfs.text import figures
from ctxfs.tools.base import Tool
from ctxfs.tools.decorator import tool

MODEL = "claude-sonnet-5-5"
"""The model whose list prices and window count."""

_PROJECT = Path(__file__).resolve().parent.parent / "data" / "demo"
_SHOWN_EVERY = 10
_MANY_LEFT = 4
"""A call before which so many results left is shown, whatever its number."""

_LIVE_ROWS = 12
_ASKED_CHARS = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the model. Tokens are what the context holds after the reply; ``without``: without evictions.

    A read-back is not in ``without``: there, nothing would have to be read back. ``left``: before this call.
    """

    number: int
    tokens: int
    without: int
    left: tuple[Evicted, ...] = ()
    asks: tuple[ToolCall, ...] = ()


@dataclass(slots=True)
class _Run:
    """The run of the demo so far."""

    calls: list[Call] = field(default_factory=list)
    pending: list[Evicted] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What came of it. ``paid_usd`` and ``without_usd``: at the list prices of the model."""

    account: Account
    effect: Effect
    report: VerifyReport
    paid_usd: float
    without_usd: float
    bytes_stored: int


def demo(root: Root = None, as_json: AsJson = False) -> None:
    """Watch an agent find a bug and mend it; needs no key.

    It is shown what left its context and why, and what that saved. The model is a script of a hundred calls; everything
    else is real: the project, which is copied first, the tools, the files, the session on disk and the figures.
    `ctxfs forget last` removes the session.
    """
    out = Console(stderr=True, quiet=True) if as_json else console()
    with TemporaryDirectory(prefix="ctxfs-demo-") as made:
        project = Path(made, "tariff")
        shutil.copytree(_PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            in_order = anyio.run(_demo, _agent(project, root), out, _again(root), as_json)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted; what the session holds is safe: `ctxfs sessions` shows it\n")
            raise
    if not in_order:
        raise typer.Exit(1)


def _agent(project: Path, root: Path | None) -> Agent:
    """The agent with its default settings."""
    tools = [*exploration_tools(project), *_tools(project)]
    config = AgentConfig(tools=tools, system_prompt=SYSTEM_PROMPT, offload_root_path=root)
    return Agent(ScriptedModel(turns(), model=MODEL), config)


def _tools(project: Path) -> list[Tool]:
    """The tools that run the project, and change it."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(project),
        "PYTHONPYCACHEPREFIX": str(project.parent),
        "PYTHONIOENCODING": "utf-8",
    }
    environment.pop("PYTHONWARNINGS", None)

    @tool("Run a Python command in the project, and get what it prints.")
    def run(command: Annotated[str, Field(description="such as: python -m unittest -v")]) -> bytes:
        _, *arguments = shlex.split(command)
        done = subprocess.run(  # noqa: S603 - what runs is in the script of this package
            [sys.executable, *arguments],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.stdout

    @tool("Replace a text that stands once in a file.")
    def edit(path: str, old: str, new: str) -> str:
        file = project / path
        before = file.read_text(encoding="utf-8")
        if before.count(old) != 1:
            raise ValueError(f"{path} has this text {before.count(old)} times, not once")
        file.write_text(before.replace(old, new), encoding="utf-8")
        return f"{path}: replaced"

    return [run, edit]


async def _demo(agent: Agent, out: Console, again: tuple[str, str], as_json: bool) -> bool:
    """Run the agent and show it; return whether everything was stored, and is as it was written."""
    run = _Run()
    result = None
    try:
        async with agent:
            out.print(Text(f"“{TASK}”\n", style="italic"))
            with Live(console=out, transient=True, auto_refresh=False) as live:
                await _watch(agent, run, lambda: live.update(_table(run.calls[-_LIVE_ROWS:]), refresh=True))
            result = await _result(agent)
    except StorageError as error:
        if result is None:
            raise
        run.failures.append(str(error))  # only closing failed: the figures are still right
    if as_json:
        print_json(_as_dict(agent, run, result))
    else:
        _print(run, result, out)
        out.print(_next_steps(agent, run, again), soft_wrap=True)
    return result.report.ok and not run.failures


async def _watch(agent: Agent, run: _Run, show: Callable[[], None]) -> None:
    try:
        async with aclosing(agent.stream(TASK)) as events:
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
            without = unevicted_tokens(agent.context.items)
            number = len(run.calls) + 1
            call = Call(number=number, tokens=event.context_tokens, without=without, left=tuple(run.pending))
            run.calls.append(call)
            run.pending.clear()
        case ToolStarted():
            run.calls[-1] = replace(run.calls[-1], asks=(*run.calls[-1].asks, event.call))
        case Done():
            run.answer = event.text
        case _:
            return False
    return True


async def _result(agent: Agent) -> _Result:
    fs = agent.context.fs
    report = await fs.verify()
    costs = account(await fs.history())
    rules = fs.state.eviction or DEFAULT_RULES
    did = effect(costs, rules)
    paid = Paid(None, ttl_s=rules.ttl_s).usd(costs.calls)
    assert paid is not None, f"the prices of {MODEL} are known"
    assert did.net_usd is not None or not costs.calls, f"the prices of {MODEL} are known"
    return _Result(
        account=costs,
        effect=did,
        report=report,
        paid_usd=paid,
        without_usd=paid + (did.net_usd or 0.0),
        bytes_stored=sum(stored.size_bytes for stored in fs.state.stored.values()),
    )


# What is shown --------------------------------------------------------------------------------------------------------


def _print(run: _Run, result: _Result, out: Console) -> None:
    out.print(_table(_worth_showing(run.calls)))
    if run.answer:
        out.print(Text(f"\n“{run.answer}”\n", style="italic"))
    out.print(_what_left(result.account))
    out.print(_figures(run, result))


def _worth_showing(calls: Sequence[Call]) -> list[Call]:
    """The first, the last, every tenth, and those with a preview, a read-back, or much that left."""

    def shown(call: Call) -> bool:
        if call.number in (1, len(calls)) or not call.number % _SHOWN_EVERY or len(call.left) >= _MANY_LEFT:
            return True
        return any(ask.name == "Read" for ask in call.asks) or any(_is_preview(event) for event in call.left)

    return [call for call in calls if shown(call)]


def _is_preview(event: Evicted) -> bool:
    return event.reason.startswith(PREVIEWED)


def _table(calls: Sequence[Call]) -> Text:
    """A line for each call. A call that reads something back is in another colour."""
    headers = ("call", "the model asks for", "context", "without", "left before, tokens")
    rows = [(str(call.number), _asked(call), f"{call.tokens:,}", f"{call.without:,}", _left(call)) for call in calls]
    header, *lines = in_columns(headers, rows, right=("call", "context", "without"))
    shown = [Text(header, style="bold")]
    for call, line in zip(calls, lines, strict=True):
        shown.append(Text(line, style="bold magenta" if any(ask.name == "Read" for ask in call.asks) else ""))
    return Text("\n").join(shown)


def _asked(call: Call) -> str:
    """The first call of a reply, in one line."""
    if not call.asks:
        return "nothing: it answers"
    first, *others = call.asks
    argument = str(next(iter(first.arguments.values()), ""))
    if first.name == "Read":
        argument = Path(argument).name
    argument = argument.removeprefix("python -m ")
    more = f", {len(others)} more" if others else ""
    asked = f"{first.name} {argument}{more}"
    return asked if len(asked) <= _ASKED_CHARS else f"{asked[: _ASKED_CHARS - 1]}{CUT}"


def _left(call: Call) -> str:
    if not call.left:
        return ""
    freed = sum(event.tokens_before - event.tokens_after for event in call.left)
    if any(_is_preview(event) for event in call.left):
        return f"a preview: {freed:,}"
    return f"{plural(len(call.left), 'result')}: {freed:,}"


def _what_left(costs: Account) -> Group:
    """How many results left for which reason, and what that freed."""
    results: Counter[str] = Counter()
    freed: Counter[str] = Counter()
    for departure in costs.departures:
        results[departure.reason] += 1
        freed[departure.reason] += departure.tokens_freed
    lines = [
        Text(f"{plural(results[reason], 'result')}, {tokens:,} tokens: {for_terminal(reason)}")
        for reason, tokens in freed.most_common()
    ]
    return Group(Text("What left, and why", style="bold"), *lines)


def _figures(run: _Run, result: _Result) -> Group:
    did = result.effect
    last = run.calls[-1] if run.calls else Call(number=0, tokens=0, without=0)
    lines = [
        Text(""),
        Text.assemble(
            (f"{figures.usd(result.paid_usd)} instead of {figures.usd(result.without_usd)}", "bold green"),
            f" at the list prices of {MODEL}, for {plural(len(run.calls), 'call')}. The context ends with ",
            (f"{last.tokens:,} tokens", "bold"),
            f"; without ctxfs it would hold {last.without:,}.",
        ),
        Text(
            f"{plural(did.evictions, 'result')} left the context; {plural(did.read_backs or 0, 'read-back')} from the "
            f"files. {_stored(result)}"
        ),
        *(Text(for_terminal(failure), style="red") for failure in dict.fromkeys(run.failures)),
        Text(
            "The replies are a script, written down before: what a model of your own saves, `ctxfs replay` shows on "
            "your own sessions. Short ones save next to nothing.",
            style="dim",
        ),
    ]
    return Group(*lines)


def _next_steps(agent: Agent, run: _Run, again: tuple[str, str]) -> Group:
    program, option = again
    left = [event.item_id for call in run.calls for event in call.left]
    commands = [
        f"explain last {left[0]}" if left else "explain last",
        f"cat last {left[0]} --lines 1:20" if left else "ls last",
        "sessions",
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


def _stored(result: _Result) -> str:
    if not result.report.ok:
        return f"{plural(len(result.report.problems), 'problem')} with stored contents: see `ctxfs check last`."
    stored = f"{plural(result.report.checked, 'content')}, {figures.size(result.bytes_stored)}"
    return f"All that is stored ({stored}) was read again and is as it was written."


def _as_dict(agent: Agent, run: _Run, result: _Result) -> dict[str, Any]:
    return {
        "session_id": agent.session_id,
        "path": str(agent.context.fs.base),
        "answer": run.answer,
        "model": MODEL,
        "cost_usd": result.paid_usd,
        "without_usd": result.without_usd,
        "effect": asdict(result.effect),
        "ok": result.report.ok,
        "checked": result.report.checked,
        "failures": run.failures,
        "calls": [
            {
                "call": call.number,
                "tokens": call.tokens,
                "tokens_without": call.without,
                "asks": [{"name": ask.name, "arguments": dict(ask.arguments)} for ask in call.asks],
                "left": [
                    {
                        "item_id": event.item_id,
                        "path": event.path,
                        "tokens_before": event.tokens_before,
                        "tokens_after": event.tokens_after,
                        "reason": event.reason,
                    }
                    for event in call.left
                ],
            }
            for call in run.calls
        ],
    }
