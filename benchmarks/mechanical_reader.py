"""Deterministic agents that know only what is in their context and tools, on generated tasks, under several policies.

    python benchmarks/mechanical_reader.py [--tasks 500] [--seed 1] [--markdown]

Each task has ten to fourteen results of tools. The agent needs a word of each as soon as it comes, to go on. Then it is
asked about one or two of them, or about a rule that the user gave at the beginning. It looks at what would be sent. If
what it looks for is not there, it opens what a placeholder names, page by page, or calls the tool again where that
gives the same; a job's log cannot be had again. It never guesses. It is no model: it forgets nothing that it is sent,
and always knows what to open.
"""

import argparse
import logging
import random
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import anyio

from ctxfs import Context
from ctxfs.messages import (
    AssistantMessage,
    CharsCounter,
    Message,
    ModelRequest,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    bill_usd,
    known_model,
)
from ctxfs.messages.serialize import MessagesSerializer
from ctxfs.testing.prompt_cache import PromptCache
from ctxfs.tools import read_tool

MODEL = "claude-sonnet-5-5"
CHARS4 = CharsCounter()
REPLY_TOKENS = 120
"""What each reply is billed for, whatever the policy."""
MOST_CALLS = 100
SMALL_WINDOW = 24_000
MEMORY = Path("/dev/shm")
KINDS = ("look up", "sum", "join", "patch", "rule")
REPEATABLE = ("table", "file")
_OPENS = re.compile(r'^Path: (\S+)$|^\[Content offloaded: Read ([^\],]+)|file_path="([^"]+)"', re.MULTILINE)
"""How the placeholders name what can be opened."""
_PLACEHOLDERS = ("[Content offloaded", "[Output stored")
_NUMBER = re.compile(r"^ *\d+(?:: |\t)", re.MULTILINE)
_NEXT = re.compile(r"next: offset=(\d+)")

Source = tuple[str, str]
"""A tool and its argument: where something is known from."""


@dataclass(frozen=True)
class Task:
    """``steps``: the calls of the session and what they return. ``sources``: what the question is about."""

    kind: str
    first: str
    steps: Sequence[tuple[Source, str]]
    question: str
    sources: Sequence[Source]
    answer: str
    solve: Callable[[Sequence[str]], str | None]


# Tasks ---------------------------------------------------------------------------------------------------------------


def task(number: int, seed: int) -> Task:
    """The task of that number."""
    draw = random.Random(f"{seed} {number}")
    kind = KINDS[number % len(KINDS)]
    steps = [filler(draw, n) for n in range(draw.randint(10, 14))]
    first = "Work through the jobs, tables and files, then answer."
    if kind == "rule":
        rule = f"Rule: never write to zone {draw.randint(10, 99)}."
        answer = re.findall(r"\d+", rule)[0]
        return Task(kind, f"{first} {rule}", steps, "Which zone must not be written to?", (), answer, solved_rule)
    places = draw.sample(range(len(steps)), 2)
    if kind == "look up":
        (source, text), answer = with_fact(draw, steps[places[0]][0], lines_of(draw))
        steps[places[0]] = (source, text)
        question = f"What is the code in the log of {source[1]}?"
        return Task(kind, first, steps, question, (source,), answer, partial(solved_by, r"the code is (\w+)"))
    if kind == "patch":
        line = draw.randint(5, 400)
        source = ("file", f"module_{number}.py")
        body = (
            "".join(f"def handler_{n}(request):\n    return {draw.getrandbits(40):x}\n" for n in range(410))
            + "# next is k1\n"
        )
        steps[places[0]] = (source, body)
        wanted = re.findall(rf"def handler_{line}\(request\):\n    return (\w+)", body)[0]
        pattern = rf"def handler_{line}\(request\):\n    return (\w+)"
        return Task(
            kind, first, steps, f"Replace what handler_{line} returns.", (source,), wanted, partial(solved_by, pattern)
        )
    rows = draw.choice((60, 200, 700, 1_500))
    one = ("table", f"orders_{number}")
    amounts = [draw.randint(1, 999) for _ in range(rows)]
    steps[places[0]] = (
        one,
        f"rows: {rows}, next is k1\n" + "".join(f"r{n},customer {n * 7 % rows},{a}\n" for n, a in enumerate(amounts)),
    )
    if kind == "sum":
        return Task(
            kind, first, steps, "What is the sum of all amounts?", (one,), str(sum(amounts)), partial(solved_sum, rows)
        )
    other = ("table", f"names_{number}")
    names = [f"n{draw.getrandbits(24):x}" for _ in range(rows)]
    steps[places[1]] = (
        other,
        f"names: {rows}, next is k1\n" + "".join(f"customer {n} is {name}\n" for n, name in enumerate(names)),
    )
    row = draw.randrange(rows)
    return Task(
        kind, first, steps, f"Who made order r{row}?", (one, other), names[row * 7 % rows], partial(solved_join, row)
    )


def filler(draw: random.Random, number: int) -> tuple[Source, str]:
    """A call that is not asked about, and its result: 200 to 6,000 tokens, one of ten up to 16,000."""
    tool = draw.choice(("job_log", "table", "file"))
    lines = lines_of(draw)
    lines.insert(draw.randint(0, len(lines)), f"next is k{draw.getrandbits(32):x}\n")
    return (tool, f"{tool} {number}"), "".join(lines)


def lines_of(draw: random.Random) -> list[str]:
    size = int(200 * 30 ** draw.random()) if draw.random() < 0.9 else draw.randint(9_000, 16_000)
    return [f"{draw.getrandbits(32):08x} step {n} done in {draw.randint(1, 900)} ms\n" for n in range(size * 4 // 36)]


def with_fact(draw: random.Random, source: Source, lines: list[str]) -> tuple[tuple[Source, str], str]:
    """A log that says a code in one of its lines."""
    code = f"c{draw.getrandbits(32):x}"
    lines.insert(draw.randint(0, len(lines)), f"note: the code is {code}\n")
    lines.insert(draw.randint(0, len(lines)), f"next is k{draw.getrandbits(32):x}\n")
    return (("job_log", f"job {source[1]}"), "".join(lines)), code


def solved_by(pattern: str, texts: Sequence[str]) -> str | None:
    """The first group of the first match."""
    found = re.search(pattern, "\n".join(texts))
    return found[1] if found else None


def solved_sum(rows: int, texts: Sequence[str]) -> str | None:
    """The sum, if every row is known."""
    found = dict(re.findall(r"^r(\d+),customer \d+,(\d+)$", "\n".join(texts), re.MULTILINE))
    return str(sum(map(int, found.values()))) if len(found) == rows else None


def solved_join(row: int, texts: Sequence[str]) -> str | None:
    """The name of the customer of an order, if both rows are known."""
    text = "\n".join(texts)
    order = re.search(rf"^r{row},customer (\d+),", text, re.MULTILINE)
    name = order and re.search(rf"^customer {order[1]} is (\w+)$", text, re.MULTILINE)
    return name[1] if name else None


def solved_rule(texts: Sequence[str]) -> str | None:
    """What the user's rule says."""
    return solved_by(r"never write to zone (\d+)", texts)


# Policies ------------------------------------------------------------------------------------------------------------


class Kept(Protocol):
    """What keeps the history of one session."""

    async def add(self, *messages: Message, usage: Usage | None = None, sources: Any = None) -> None:
        """Add messages; ``usage``: what the reply among them was billed, ``sources``: where results were read."""

    async def view(self) -> list[Message]:
        """What is sent."""

    async def read(self, path: str, offset: int) -> Any:
        """What a placeholder names, from a line on, and where that stands."""


@dataclass
class Plain:
    """A history that a function rewrites at each call; ``stored``: what its placeholders name."""

    rewrite: Callable[[list[Message], dict[str, str]], list[Message]]
    messages: list[Message] = field(default_factory=list)
    stored: dict[str, str] = field(default_factory=dict)

    async def add(self, *messages: Message, usage: Usage | None = None, sources: Any = None) -> None:
        """Append them; what was billed and read decides nothing here."""
        del usage, sources
        self.messages += messages

    async def view(self) -> list[Message]:
        """What is sent."""
        return self.rewrite(self.messages, self.stored)

    async def read(self, path: str, offset: int) -> Any:
        """All that is stored there."""
        del offset
        return self.stored[path], None


@dataclass
class Ours:
    """A ``Context``."""

    context: Context

    async def add(self, *messages: Message, usage: Usage | None = None, sources: Any = None) -> None:
        """Add them as a loop does."""
        more: dict[str, Any] = {} if usage is None else {"usage": usage, "model": MODEL}
        if sources:
            more["sources"] = sources
        await self.context.add(*messages, **more)

    async def view(self) -> list[Message]:
        """What is sent."""
        return list(await self.context.messages())

    async def read(self, path: str, offset: int) -> Any:
        """A page, by the model's own tool."""
        result = await read_tool(self.context.fs, counter=CHARS4).run({"file_path": path, "offset": offset})
        return result.content, result.source


def whole(messages: list[Message], _: dict[str, str]) -> list[Message]:
    """Nothing is replaced."""
    return messages


def cleared(messages: list[Message], stored: dict[str, str]) -> list[Message]:
    """Above 12,000 tokens all results but the last three go, for good; in batches, as providers do."""
    gone = stored.setdefault("gone", "")
    shown = [replaced(m, "[Old tool result content cleared]") if is_gone(m, gone) else m for m in messages]
    if sum(size_of(m) for m in shown) <= SMALL_WINDOW // 2:
        return shown
    old = [m for m in messages if isinstance(m, ToolMessage)][:-3]
    stored["gone"] = " ".join(m.tool_call_id for m in old)
    return [replaced(m, "[Old tool result content cleared]") if is_gone(m, stored["gone"]) else m for m in messages]


def is_gone(message: Message, gone: str) -> bool:
    return isinstance(message, ToolMessage) and message.tool_call_id in gone.split()


def truncated(messages: list[Message], _: dict[str, str]) -> list[Message]:
    """Only the newest messages that fit a small window."""
    kept: list[Message] = []
    room = SMALL_WINDOW
    for message in reversed(messages):
        room -= size_of(message)
        if room < 0 and kept:
            break
        kept.append(message)
    return kept[::-1]


def cut(messages: list[Message], _: dict[str, str]) -> list[Message]:
    """Each result has its first 1,000 tokens only: the rest is never seen."""
    return [replaced(m, str(m.content)[:4_000]) if isinstance(m, ToolMessage) else m for m in messages]


def hidden(messages: list[Message], stored: dict[str, str]) -> list[Message]:
    """Each result above 400 tokens is hidden before it is seen; a bare placeholder says where it is."""
    shown: list[Message] = []
    for message in messages:
        is_page = isinstance(message, ToolMessage) and message.tool_name == "Read"
        if isinstance(message, ToolMessage) and not is_page and size_of(message) > 400:
            path = f"/stored/{message.tool_call_id}"
            stored[path] = str(message.content)
            shown.append(replaced(message, f"[Content offloaded]\nPath: {path}\nUse Read tool to view details."))
        else:
            shown.append(message)
    return shown


def replaced(message: Message, text: str) -> Message:
    assert isinstance(message, ToolMessage)
    return ToolMessage(message.tool_call_id, message.tool_name, text)


def size_of(message: Message) -> int:
    return CHARS4.count(str(message.content))


PLAIN: Mapping[str, Callable[[list[Message], dict[str, str]], list[Message]]] = {
    "everything is sent": whole,
    "results cleared above 12k tokens, the last 3 stay": cleared,
    "truncated to the newest 24k tokens": truncated,
    "results cut to 1,000 tokens": cut,
    "results above 400 tokens hidden unseen, to be opened": hidden,
}
OURS: Mapping[str, Mapping[str, Any]] = {
    "ctxfs": {},
    "ctxfs, a window of 24k tokens": {"window": SMALL_WINDOW},
    "ctxfs, keep-recent of 1": {"keep_recent": {"job_log": 1, "table": 1, "file": 1}},
}
POLICIES = ("everything is sent", *OURS, *[name for name in PLAIN if name != "everything is sent"])


# The agent -----------------------------------------------------------------------------------------------------------


@dataclass
class Played:
    """One task under one policy."""

    kind: str
    solved: bool
    extra_calls: int
    usd: float
    tokens: int


class Agent:
    """Plays a task; each of its requests is billed."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.usd = 0.0
        self.tokens = 0
        self.calls = 0
        self._numbers = count(1)
        self._cache = PromptCache(explicit=False, counter=CHARS4, clock=lambda: 0.0)
        self._serializer = MessagesSerializer()
        self._usage = Usage()

    async def play(self, given: Task) -> Played:
        """Play it to its answer."""
        await self.kept.add(UserMessage(given.first))
        await self.asked()
        for source, text in given.steps:
            await self.call(source[0], {"name": source[1]}, text)
            await self.found(partial(solved_by, r"next is (\w+)"), (source,), given)
        await self.kept.add(AssistantMessage("Done."), usage=self._usage)
        await self.kept.add(UserMessage(given.question))
        answer = await self.found(given.solve, given.sources, given)
        extra = self.calls - len(given.steps) - 2
        return Played(given.kind, answer == given.answer, extra, self.usd, self.tokens)

    async def found(
        self, solve: Callable[[Sequence[str]], str | None], sources: Sequence[Source], given: Task
    ) -> str | None:
        """What is looked for, from what is sent and can be opened; None: it cannot be known."""
        offsets: dict[str, int] = {}
        again: set[Source] = set()
        view = await self.asked()
        while (answer := solve(known(view, sources))) is None:
            if self.calls > MOST_CALLS or not await self.looked(view, sources, given, offsets, again):
                return None
            view = await self.asked()
        return answer

    async def looked(
        self,
        view: Sequence[Message],
        sources: Sequence[Source],
        given: Task,
        offsets: dict[str, int],
        again: set[Source],
    ) -> bool:
        """Open the next page of a source, or call for it again; False: there is no way."""
        for source in sources:
            for path in paths_of(view, source):
                offset = offsets.get(path, 1)
                if offset:
                    content, page = await self.kept.read(path, offset)
                    following = _NEXT.search(str(content)[-400:])
                    offsets[path] = int(following[1]) if following else 0
                    await self.call("Read", {"file_path": path}, content, page)
                    return True
            if source[0] in REPEATABLE and source not in again and not paths_of(view, source):
                again.add(source)
                await self.call(source[0], {"name": source[1]}, next(t for s, t in given.steps if s == source))
                return True
        return False

    async def asked(self) -> list[Message]:
        """Send what is kept, and pay for it."""
        view = await self.kept.view()
        body = self._serializer.body(ModelRequest(messages=tuple(view)), model=MODEL, max_tokens=500, cache=False)
        self._usage = self._cache.account(body, output_tokens=REPLY_TOKENS)
        info = known_model(MODEL)
        assert info is not None
        assert info.prices is not None
        self.usd += bill_usd(self._usage, info.prices)
        self.tokens += self._usage.total_input_tokens
        self.calls += 1
        return view

    async def call(self, tool: str, arguments: dict[str, Any], content: Any, page: Any = None) -> None:
        """Call a tool, with its result."""
        call_id = f"c{next(self._numbers)}"
        block = {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}
        await self.kept.add(AssistantMessage((block,)), usage=self._usage)
        await self.kept.add(ToolMessage(call_id, tool, content), sources=None if page is None else {call_id: page})


def known(view: Sequence[Message], sources: Sequence[Source]) -> list[str]:
    """What an agent sees of these sources; without one, what users said."""
    if not sources:
        return [str(m.content) for m in view if isinstance(m, UserMessage)]
    calls = calls_in(view)
    wanted = {("Read", path) for source in sources for path in paths_of(view, source)} | set(sources)
    texts = []
    for message in view:
        call = calls.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        if call is not None and source_of(call) in wanted:
            texts.append(_NUMBER.sub("", text_of(message)))
    return texts


def paths_of(view: Sequence[Message], source: Source) -> list[str]:
    """What the placeholders of a source name, oldest first."""
    calls = calls_in(view)
    found = []
    for message in view:
        call = calls.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        if call is not None and source_of(call) == source and text_of(message).startswith(_PLACEHOLDERS):
            found += [next(filter(None, groups)) for groups in _OPENS.findall(text_of(message))]
    return list(dict.fromkeys(found))


def calls_in(view: Sequence[Message]) -> dict[str, ToolCall]:
    return {call.id: call for m in view if isinstance(m, AssistantMessage) for call in m.tool_calls}


def source_of(call: ToolCall) -> Source:
    return call.name, str(call.arguments.get("name", call.arguments.get("file_path", "")))


def text_of(message: Message) -> str:
    content = message.content
    return content if isinstance(content, str) else "\n".join(str(block.get("text", "")) for block in content)


# The table -----------------------------------------------------------------------------------------------------------


async def played(name: str, number: int, seed: int, root: Path) -> Played:
    """One task under one policy."""
    given = task(number, seed)
    if name in PLAIN:
        return await Agent(Plain(PLAIN[name])).play(given)
    async with Context(root_path=root, model=MODEL, counter=CHARS4, **OURS[name]) as context:
        return await Agent(Ours(context)).play(given)


def share(name: str, numbers: Sequence[int], seed: int) -> list[Played]:
    """The tasks of these numbers under one policy."""
    logging.getLogger("ctxfs").setLevel(logging.ERROR)  # the cost that keep-recent warns of is in the table
    kept_in = MEMORY if MEMORY.is_dir() else None  # nothing waits for a disk

    async def all_of_them() -> list[Played]:
        with tempfile.TemporaryDirectory(dir=kept_in) as root:
            return [await played(name, number, seed, Path(root)) for number in numbers]

    return anyio.run(all_of_them)


def table(tasks: int, seed: int, jobs: int) -> Mapping[str, Sequence[Played]]:
    """All tasks under all policies."""
    found: dict[str, list[Played]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        parts = {
            name: [pool.submit(share, name, range(j, tasks, jobs * 4), seed) for j in range(jobs * 4)]
            for name in POLICIES
        }
        for name, futures in parts.items():
            found[name] = [one for future in futures for one in future.result()]
    return found


def rows(found: Mapping[str, Sequence[Played]]) -> list[list[str]]:
    """What is printed: each policy's solved tasks by kind, its extra calls, and its cost."""
    base = sum(one.usd for one in found["everything is sent"])
    lines = []
    for name, all_of_it in found.items():
        by_kind = [f"{sum(one.solved for one in all_of_it if one.kind == kind)}" for kind in KINDS]
        cost = sum(one.usd for one in all_of_it)
        extra = sum(one.extra_calls for one in all_of_it) / len(all_of_it)
        solved = sum(one.solved for one in all_of_it)
        lines.append([name, f"{solved} of {len(all_of_it)}", *by_kind, f"{extra:.2f}", f"{cost / base:.3f}"])
    return lines


HEADS = ("policy", "solved", *KINDS, "extra calls a task", "cost")


def main() -> int:
    """Print the table; return how many of its limits are not kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=500, help="how many tasks (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="of the tasks (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    given = parser.parse_args()
    found = table(given.tasks, given.seed, given.jobs)
    print(f"| {' | '.join(HEADS)} |")
    print(f"|---|{'---:|' * (len(HEADS) - 1)}")
    for cells in rows(found):
        print(f"| {' | '.join(cells)} |")
    wrong = unlikely(found)
    for reason in wrong:
        print(f"LIMIT: {reason}")
    return len(wrong)


def unlikely(found: Mapping[str, Sequence[Played]]) -> list[str]:
    """What a measurement must show, or it measures nothing: losses where content is lost, calls where it is hidden."""
    solved = {name: sum(one.solved for one in all_of_it) for name, all_of_it in found.items()}
    extra = {name: sum(one.extra_calls for one in all_of_it) for name, all_of_it in found.items()}
    first, *_ = found
    wrong = []
    if solved[first] < len(found[first]) or extra[first]:
        wrong.append("with everything in the request, each task is solved without an extra call")
    if solved["ctxfs"] < solved[first]:
        wrong.append("ctxfs: what left can be opened, and what was opened stays while it is read")
    for name in (truncated, cut, cleared):
        policy = next(one for one, kept in PLAIN.items() if kept is name)
        if solved[policy] >= solved[first]:
            wrong.append(f"{policy}: it loses content for good, and no task")
        if solved[policy] > solved["ctxfs"]:
            wrong.append(f"{policy}: it solves more than ctxfs")
    unseen = next(one for one, kept in PLAIN.items() if kept is hidden)
    if extra[unseen] < 2 * extra["ctxfs"]:
        wrong.append(f"{unseen}: opening what was never seen costs no calls")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
