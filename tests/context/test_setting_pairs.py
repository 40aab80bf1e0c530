"""Every two settings work together, or are refused by both their names before anything is written."""

import inspect
import itertools
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs import Agent, AgentConfig, Context, History, OffloadPolicy, Part, tool
from ctxfs.agent import Telemetry
from ctxfs.errors import ConfigError
from ctxfs.eviction import EvictionPricing, SelectiveCompaction, Window
from ctxfs.messages import TEXT, CharsCounter, Layout, ToolCall
from ctxfs.storage.memory import MemorySessions
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Bash, Materialize, Materializer, ToolResultOffload

STAYS = OffloadPolicy(type_enabled={"tool_result": False})
REPEATS = OffloadPolicy(repeats=True)
LARGE_ONLY = OffloadPolicy(token_threshold=500)
SMALL = Window(window_tokens=9_000, reply_tokens=1_000)
LOG = "".join(f"line {number} of a log, with the word error in some\n" for number in range(100))

Settings = Mapping[str, Any]
Values = Mapping[str, tuple[Any, ...]]


def nothing(*_: object) -> None:
    """What a function that only watches does."""


def unchanged(_: object, content: Any) -> Any:
    """A redaction that finds nothing."""
    return content


def yes(_: object) -> bool:
    """Approval."""
    return True


@tool("Shows a log", ephemeral=1)
def show() -> str:
    return LOG


@tool("Opens a file", name="Read")
def own_read(file_path: str) -> str:
    return file_path


CONTEXT: Values = {
    "session_id": ("s",),
    "model": ("claude-sonnet-5-5",),
    "root_path": ("directory", "memory"),
    "keep_recent": ({"show": 1}, {"show": "all"}),
    "offload_enabled": (False,),
    "offload_policy": (STAYS, LARGE_ONLY, OffloadPolicy(digest_tokens=0), REPEATS),
    "on_event": (nothing,),
    "counter": (CharsCounter(chars_per_token=3),),
    "window": (None, SMALL, replace(SMALL, compaction=SelectiveCompaction())),
    "eager": (Materializer(settings=Materialize(max_inline_chars=500)),),
    "pricing": (None, EvictionPricing(host_breakpoints=True)),
    "preview_above_tokens": (None, 1_000),
    "pin_user_messages": (True,),
    "one_commit_a_turn": (True,),
}

HISTORY: Values = {
    "session_id": ("s",),
    "root_path": ("directory", "memory"),
    "model": ("claude-sonnet-5-5",),
    "keep_recent": ({"show": 1},),
    "offload_policy": (STAYS, LARGE_ONLY, OffloadPolicy(digest_tokens=0), REPEATS),
    "window": (None, SMALL),
    "pricing": (None, EvictionPricing(host_breakpoints=True)),
    "preview_above_tokens": (None, 1_000),
    "materialize": (Materialize(max_inline_chars=500),),
    "layout": ("envelope", Layout("text", compress_from_chars=100)),
    "read_tool": ("context_read",),
    "recall": (True,),
    "counter": (CharsCounter(chars_per_token=3),),
    "on_event": (nothing,),
    "shadow": (nothing,),
}


AGENT: Values = {
    "tools": ([], [show, own_read]),
    "system_prompt": ("Be brief.",),
    "offload_enabled": (False,),
    "offload_token_threshold": (300,),
    "offload_root_path": ("directory", "memory"),
    "offload_policy": (STAYS, LARGE_ONLY, OffloadPolicy(digest_tokens=0), REPEATS),
    "pin_user_messages": (True,),
    "ephemeral_keep_recent": (2,),
    "session_id": ("s",),
    "pricing": (None,),
    "window": (None, SMALL),
    "preview_above_tokens": (None, 1_000),
    "materialize": (Materialize(max_inline_chars=500), ToolResultOffload()),
    "layout": (TEXT, Layout("envelope", compress_from_chars=100)),
    "bash": (Bash(),),
    "recall": (True,),
    "telemetry": (Telemetry(),),
    "status_tokens": (200,),
    "one_commit_a_turn": (True,),
    "max_turns": (None,),
    "read_roots": ([Path(__file__).parent],),
    "approve": (yes,),
    "redact": (unchanged,),
}


NAMED_BY = {"tools": "your tool"}
"""How a refusal names a setting that is a list: by what is in it."""


def exchange(number: int) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": f"call_{number}", "name": "show", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": LOG}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


async def use_context(settings: Settings) -> None:
    async with Context(**settings) as context:
        await context.add({"role": "user", "content": "go"})
        for number in range(2):
            for message in exchange(number):
                await context.add(message)
            await context.request()


async def use_history(settings: Settings) -> None:
    parts = [Part("user", "go", "u")]
    for number in range(2):
        call_id = f"call_{number}"
        parts.append(Part("call", {}, f"c{number}", call_id, "show"))
        parts.append(Part("result", LOG, f"r{number}", call_id, "show"))
    async with History(**settings) as history:
        await history.arewrite(parts)


def make_agent(**settings: Any) -> None:
    config = AgentConfig(**{"tools": [show], **settings})
    if settings.keys() & {"tools", "status_tokens"}:  # what an Agent checks, since it knows its model and its store
        Agent(ScriptedModel(["done"]), config)


async def use_agent(settings: Settings) -> None:
    turns: list[Any] = ["done"]
    if show in settings.get("tools", [show]):
        turns.insert(0, [ToolCall(id="call_1", name="show", arguments={})])
    async with Agent(ScriptedModel(turns), AgentConfig(**{"tools": [show], **settings})) as agent:
        await agent.query("go")


Chosen = tuple[str, int]
"""A setting, and which of its values."""


class Kind:
    """A class with settings: how it is made and used, and in which setting it is told where its sessions are."""

    def __init__(
        self,
        make: Callable[..., object],
        use: Callable[[Settings], Awaitable[None]],
        values: Values,
        root: str = "root_path",
    ) -> None:
        self.make = make
        self.use = use
        self.values = values
        self.root = root

    def settings(self, chosen: Iterable[Chosen], directory: Path, stores: MemorySessions) -> dict[str, Any]:
        """The values that are chosen, in a directory and in stores of their own."""
        settings: dict[str, Any] = {name: self.values[name][index] for name, index in chosen}
        opens_files = own_read in settings.get("tools", ())
        place = settings.get(self.root, "directory" if opens_files else "memory")
        settings[self.root] = directory if place == "directory" else stores
        if self.make is not make_agent:
            settings.setdefault("counter", CharsCounter())
        if "bash" in settings:
            settings.setdefault("approve", yes)
        return settings

    def pairs(self) -> list[frozenset[Chosen]]:
        """Every two settings, at each of their values."""
        every = [(name, index) for name, values in self.values.items() for index in range(len(values))]
        return [frozenset(two) for two in itertools.combinations(every, 2) if two[0][0] != two[1][0]]


KINDS = {
    "Context": Kind(Context, use_context, CONTEXT),
    "History": Kind(History, use_history, HISTORY),
    "AgentConfig": Kind(make_agent, use_agent, AGENT, "offload_root_path"),
}


def refusal(kind: Kind, chosen: Iterable[Chosen], directory: Path) -> ConfigError | None:
    """Why the settings are refused together; None: they are not. Nothing may be written meanwhile."""
    try:
        kind.make(**kind.settings(chosen, directory, MemorySessions()))
    except ConfigError as error:
        return error
    finally:
        assert not directory.exists(), sorted(chosen)
    return None


def together(kind: Kind, pairs: Iterable[frozenset[Chosen]], directory: Path) -> Iterator[dict[Chosen, None]]:
    """Few sets of settings that are accepted, in which each of the pairs is: far fewer sessions than pairs."""
    left = dict.fromkeys(pairs)
    while left:
        chosen = dict.fromkeys(sorted(next(iter(left))))
        wanted = [one for pair in left for one in sorted(pair)]
        for one in dict.fromkeys(wanted):
            if one[0] not in {name for name, _ in chosen} and refusal(kind, [*chosen, one], directory) is None:
                chosen[one] = None
        for pair in itertools.combinations(chosen, 2):
            left.pop(frozenset(pair), None)
        yield chosen


@pytest.mark.filterwarnings("ignore:ephemeral_keep_recent has no effect")  # an agent without tools is no error
@pytest.mark.parametrize("name", ["Context", "History", pytest.param("AgentConfig", marks=pytest.mark.slow)])
def test_two_settings_work_together_or_are_refused_by_both_names(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    accepted = []
    for pair in kind.pairs():
        error = refusal(kind, sorted(pair), tmp_path / "refused")
        if error is None:
            accepted.append(pair)
        for setting, _ in sorted(pair) if error is not None else ():
            assert re.search(rf"\b{NAMED_BY.get(setting, setting)}\b", str(error)), f"{sorted(pair)}: {error}"
    for number, chosen in enumerate(together(kind, accepted, tmp_path / "refused")):
        anyio.run(kind.use, kind.settings(chosen, tmp_path / str(number), MemorySessions()))


@pytest.mark.parametrize("name", KINDS)
def test_every_setting_is_in_a_pair(name: str) -> None:
    kind = KINDS[name]
    made = AgentConfig if kind.make is make_agent else kind.make
    # fs takes the place of two other settings, and has a test of its own.
    assert inspect.signature(made).parameters.keys() - {"fs"} == kind.values.keys()
