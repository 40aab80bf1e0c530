"""What a history takes the provider's cache to hold: the breakpoints of the program that sends it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Part
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.messages import CharsCounter
from ctxfs.testing.history_conformance import pricing_on

pytestmark = pytest.mark.not_measured

MARK = {"cache_control": {"type": "ephemeral"}}
PRINTED = "".join(f"line {n} of the log\n" for n in range(1_200))


def history(root: Path, **settings: Any) -> History:
    pricing = pricing_on(lambda: 0.0, parameters=EvictionParameters())
    settings = {"pricing": pricing, **settings}
    return History(root_path=root, window=None, counter=CharsCounter(), **settings)


def body(*, marked: bool = False, asked: bool = False) -> dict[str, Any]:
    """A long question, an old result, and much talk after it."""
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "make"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": PRINTED}
    talk = [{"role": role, "content": "and on"} for _ in range(100) for role in ("assistant", "user")]
    last = {"role": "user", "content": [{"type": "text", "text": "go on", **(MARK if marked else {})}]}
    messages = [
        {"role": "user", "content": "why? " * 48_000},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        *talk,
        {"role": "assistant", "content": "so"},
        last,
    ]
    return {"model": "m", "messages": messages, **(MARK if asked else {})}


def is_replaced(sent: Mapping[str, Any]) -> bool:
    (result,) = sent["messages"][2]["content"]
    return bool(result["content"] != PRINTED)


@pytest.mark.parametrize("how", ["marked", "asked"])
def test_a_request_that_ends_with_breakpoints_is_not_changed_for_little(tmp_path: Path, how: str) -> None:
    with history(tmp_path) as plain:
        assert is_replaced(plain.messages(body()))
    with history(tmp_path) as told:
        assert not is_replaced(told.messages(body(**{how: True})))
        assert not is_replaced(told.messages(body()))  # what was seen once is remembered


def test_a_framework_can_say_that_it_sets_the_breakpoints(tmp_path: Path) -> None:
    parts = [Part("user", "why? " * 48_000, 0), Part("call", {"command": "make"}, 1, "c", "Bash")]
    parts.append(Part("result", PRINTED, 2, "c", "Bash"))
    parts += [Part(kind, "and on", (n, kind)) for n in range(100) for kind in ("reply", "user")]
    for settings, replaced in (({}, [2]), ({"pricing": pricing_on(lambda: 0.0, host_breakpoints=True)}, [])):
        with history(tmp_path, **settings) as told:
            assert list(told.rewrite(parts)) == replaced
            assert list(told.rewrite(parts[:-1])) == replaced  # also when all is read again


def test_breakpoints_mean_nothing_without_prices(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, pricing=None, window=None) as unpriced:
        assert not is_replaced(unpriced.messages(body(marked=True)))


@pytest.mark.parametrize(("rest", "replaced"), [(0, False), (66_000, True)])
def test_what_a_provider_did_not_cache_costs_no_rewrite(tmp_path: Path, rest: int, replaced: bool) -> None:
    def long(answers: int) -> dict[str, Any]:
        """The result stands in front of the long question."""
        whole = body()
        first, call, result, *talk = whole["messages"]
        asked = [{"role": "user", "content": "go"}, call, result, {"role": "assistant", "content": "hm"}, first, *talk]
        answered = [{"role": role, "content": "more"} for _ in range(answers) for role in ("assistant", "user")]
        return {**whole, "messages": [*asked, *answered]}

    with history(tmp_path) as told:
        assert not is_replaced(told.messages(long(0)))
        told.replied({"input_tokens": rest, "cache_read_input_tokens": 66_000 - rest, "output_tokens": 1})
        assert is_replaced(told.messages(long(1))) == replaced
