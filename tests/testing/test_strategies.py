"""The strategies really reach what they promise."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import Phase, find, settings
from hypothesis.errors import NoSuchExample

from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage
from ctxfs.testing.strategies import transcripts

pytestmark = pytest.mark.not_measured

Transcript = tuple[Message, ...]


def results(transcript: Transcript) -> list[ToolMessage]:
    return [m for m in transcript if isinstance(m, ToolMessage)]


def kinds(transcript: Transcript) -> set[str]:
    return {b["type"] for m in transcript if isinstance(m.content, tuple) for b in m.content}


FAST = settings(max_examples=1_000, phases=[Phase.generate], database=None)

REACHED: dict[str, Callable[[Transcript], bool]] = {
    "parallel calls": lambda t: any(isinstance(m, AssistantMessage) and len(m.tool_calls) > 1 for m in t),
    "errors": lambda t: any(r.is_error for r in results(t)),
    "empty results": lambda t: any(r.content == "" for r in results(t)),
    "empty lists": lambda t: any(r.content == () for r in results(t)),
    "images": lambda t: any("image" in kinds((r,)) for r in results(t)),
    "documents": lambda t: any("document" in kinds((r,)) for r in results(t)),
    "lone surrogates": lambda t: any(
        isinstance(r.content, str) and any("\ud800" <= c <= "\udfff" for c in r.content) for r in results(t)
    ),
    "thinking": lambda t: "thinking" in kinds(t),
    "redacted thinking": lambda t: "redacted_thinking" in kinds(t),
    "an open loop at the end": lambda t: isinstance(t[-1], ToolMessage),
}


def test_transcripts_reach_everything() -> None:
    missing = set(REACHED)

    def all_reached(transcript: Transcript) -> bool:
        missing.difference_update({feature for feature in missing if REACHED[feature](transcript)})
        return not missing

    with suppress(NoSuchExample):
        find(transcripts(), all_reached, settings=FAST)
    assert missing == set()


def test_hostile_ids_repeat() -> None:
    def repeats(transcript: Transcript) -> bool:
        ids = [r.tool_call_id for r in results(transcript)]
        return len(set(ids)) < len(ids)

    assert find(transcripts(hostile_ids=True), repeats, settings=FAST)


def test_the_package_is_imported_without_hypothesis_and_without_a_server() -> None:
    program = "import sys, ctxfs.testing; print([m for m in ('hypothesis', 'http.server') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
