"""The conformance suite of adapters: what is right passes it, and each rule that is broken is found."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Part
from ctxfs.errors import CtxfsError
from ctxfs.testing.history_conformance import HistoryConformance, play, rewritten_parts, violations

pytestmark = pytest.mark.slow


class TestItself(HistoryConformance):
    seeds = 3


class TestMessagesBody(HistoryConformance):
    """An own loop over the Messages API: each part is a message of its own."""

    seeds = 3

    def rewritten(self, history: History, parts: Sequence[Part], branch: str) -> Sequence[Any]:
        sent = history.messages({"messages": [_message(part) for part in parts]}, branch=branch)
        return [_content(part, message) for part, message in zip(parts, sent["messages"], strict=True)]


def _message(part: Part) -> dict[str, Any]:
    if part.stays:  # the wire has no word for it: a role that is never replaced
        return {"role": "system", "content": part.content}
    if part.kind == "call":
        block = {"type": "tool_use", "id": part.id, "name": part.tool, "input": part.content}
        return {"role": "assistant", "content": [block]}
    if part.kind == "result":
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": part.id, "content": part.content}]}
    return {"role": "assistant" if part.kind == "reply" else "user", "content": part.content}


def _content(part: Part, message: dict[str, Any]) -> Any:
    if part.stays or part.kind in ("user", "reply"):
        return message["content"]
    (block,) = message["content"]
    return block["input" if part.kind == "call" else "content"]


# Controls: each breaks one rule --------------------------------------------------------------------------------------


def raises(history: History, parts: Sequence[Part], branch: str) -> list[Any]:
    if any(part.kind == "result" and not any(p.id == part.id and p.kind == "call" for p in parts) for part in parts):
        raise CtxfsError("a result without its call")
    return rewritten_parts(history, parts, branch)


def forgets(history: History, parts: Sequence[Part], branch: str) -> list[Any]:
    """Gives the originals back as soon as the history is long."""
    return [part.content for part in parts] if len(parts) > 30 else rewritten_parts(history, parts, branch)


def counts(history: History, parts: Sequence[Part], branch: str, calls: list[int] = [0]) -> list[Any]:  # noqa: B006
    """Writes into a placeholder how often it was asked."""
    calls[0] += 1
    return [
        f"{new} {calls[0]}" if new != part.content and isinstance(new, str) else new
        for part, new in zip(parts, rewritten_parts(history, parts, branch), strict=True)
    ]


def replaces_all(history: History, parts: Sequence[Part], branch: str) -> list[Any]:
    return rewritten_parts(history, [part._replace(stays=False) for part in parts], branch)


def nests(history: History, parts: Sequence[Part], branch: str) -> list[Any]:
    """Takes its own placeholders for contents."""
    return [
        f"[{new}]" if part.kind == "result" and isinstance(new, str) and "[Content offloaded]" in new else new
        for part, new in zip(parts, rewritten_parts(history, parts, branch), strict=True)
    ]


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (raises, "raised"),
        (forgets, "taken back"),
        (counts, "idempotent"),
        (replaces_all, "stays"),
        (nests, "settled"),
    ],
)
def test_a_broken_rule_is_found(tmp_path: Path, broken: Callable[..., list[Any]], rule: str) -> None:
    found: set[str] = set()
    for seed in range(12):
        found |= {violation.rule for violation in play(seed, tmp_path, steps=40, rewritten=broken).violations}
        if rule in found:
            return
    pytest.fail(f"only {found} were found")


def test_a_content_that_is_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxfs.testing.history_conformance.sha256_of", lambda content: str(len(str(content))) + "x")
    assert "lost" in {violation.rule for violation in play(1, tmp_path, steps=30).violations}


def test_a_session_that_forgets_is_found(tmp_path: Path) -> None:
    """What was decided before a restart is not known after it: the lines of the journal that say so are gone."""
    in_use: list[History] = []

    def forgetful(history: History, parts: Sequence[Part], branch: str) -> list[Any]:
        if history not in in_use:
            in_use[:] = [history]
            journal = history.session_path / "journal.jsonl"
            if journal.exists():
                lines = journal.read_bytes().splitlines(keepends=True)
                journal.write_bytes(b"".join(line for line in lines if b'"decided"' not in line))
        return rewritten_parts(history, parts, branch)

    def rules(seed: int) -> set[str]:
        return {violation.rule for violation in violations([play(seed, tmp_path, rewritten=forgetful)])}

    assert any("taken back" in rules(seed) for seed in range(8))


def test_an_adapter_that_replaces_nothing_is_found(tmp_path: Path) -> None:
    class Nothing(HistoryConformance):
        seeds = 2

        def rewritten(self, history: History, parts: Sequence[Part], branch: str) -> Sequence[Any]:
            return [part.content for part in parts]

    with pytest.raises(pytest.fail.Exception, match="replaced nothing"):
        Nothing().test_the_rules_hold_in_random_histories(tmp_path)
