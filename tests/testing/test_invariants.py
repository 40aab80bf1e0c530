"""Every fault that a provider answers with a 400 is found, with its reason; nothing else is."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxfs.errors import TranscriptError
from ctxfs.testing.invariants import check, violations
from ctxfs.testing.strategies import bodies
from prove.corruptions import CORRUPTIONS, Corrupted, corrupt, corrupted_bodies, valid_body


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_fault_is_found_with_its_reason(name: str) -> None:
    bad = corrupt(name, valid_body())
    with pytest.raises(TranscriptError) as caught:
        check(bad.body)
    assert any(bad.reason in v for v in caught.value.violations), caught.value.violations


@given(corrupted_bodies())
def test_each_fault_is_found_behind_any_beginning(bad: Corrupted) -> None:
    assert any(bad.reason in v for v in violations(bad.body))


@given(bodies())
def test_valid_bodies_have_none(body: dict[str, Any]) -> None:
    check(body)


def test_the_body_that_is_spoiled_has_none() -> None:
    check(valid_body())


def test_block_types_that_are_not_known_pass() -> None:
    body = valid_body()
    body["messages"][0]["content"].append({"type": "of_next_year", "anything": 1})
    check(body)


def test_what_is_only_referred_to_passes() -> None:
    body = valid_body()
    sources = [{"type": "url", "url": "https://example.com/a"}, {"type": "file", "file_id": "f"}]
    body["messages"][0]["content"] += [{"type": kind, "source": s} for kind in ("image", "document") for s in sources]
    check(body)


def test_big_integers_in_arguments_are_no_fault() -> None:
    body = valid_body()
    body["messages"][1]["content"][2]["input"] = {"n": 2**80}
    check(body)


def test_a_violation_names_its_place() -> None:
    body = valid_body()
    body["messages"][2]["content"][1]["content"][0]["text"] = ""
    assert violations(body) == [
        "messages.2.content.1.tool_result.content.0: text content blocks must contain non-whitespace text"
    ]


@pytest.mark.parametrize(
    ("field", "nonsense", "reason"),
    [
        ("tools", "Read", "tools: should be a list of objects"),
        ("tools", ["Read"], "tools.0: should be an object"),
        ("tools", [{"name": 1}], "tools.0.name: should be a string"),
        ("tools", [{"name": "Read", "input_schema": "none"}], "tools.0.input_schema: should be an object"),
        ("thinking", "on", "thinking: should be an object"),
        ("system", {"type": "text"}, "system: should be a list of objects"),
        ("messages", "hello", "messages: should be a list of objects"),
        ("messages", ["hello"], "messages.0: should be an object"),
        (
            "messages",
            [{"role": "nobody", "content": "x"}],
            "messages.0.role: should be 'user' or 'assistant', not 'nobody'",
        ),
        ("messages", [{"role": "user", "content": 1}], "messages.0.content: should be a string or a list of blocks"),
        ("messages", [{"role": "user", "content": ["x"]}], "messages.0.content.0: should be an object"),
    ],
)
def test_what_is_of_another_type_is_named_with_its_place(field: str, nonsense: Any, reason: str) -> None:
    assert reason in violations({**valid_body(), field: nonsense})


def test_a_message_without_a_block_is_found() -> None:
    body = valid_body()
    body["messages"][0]["content"] = []
    (found,) = violations(body)
    assert found.startswith("messages.0")


def test_messages_of_one_role_that_follow_each_other_are_one_turn() -> None:
    call = {"type": "tool_use", "id": "c", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "found"}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "reading"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "user", "content": "and then?"},
    ]
    assert violations({"model": "m", "max_tokens": 9, "messages": messages}) == []
    (found,) = violations({"model": "m", "max_tokens": 9, "messages": [*messages[:3], *messages[4:]]})
    assert "'c' has no tool_result" in found


def test_a_system_message_may_stand_anywhere_but_not_alone() -> None:
    said = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    body = valid_body()
    calls = next(n for n, m in enumerate(body["messages"]) if "tool_use" in str(m["content"]))
    body["messages"][calls + 1 : calls + 1] = [said, {"role": "system", "content": "And polite."}]
    assert violations(body) == []
    assert violations({**body, "messages": [{"role": "system", "content": "alone"}]}) == [
        "messages: at least one message is required"
    ]


def test_a_document_as_text_passes() -> None:
    body = valid_body()
    source = {"type": "text", "media_type": "text/plain", "data": "a page"}
    body["messages"][0]["content"] = [{"type": "document", "source": source}]
    assert violations(body) == []


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside of ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in items for inner in places(item, (*path, key)))]


ANY_JSON: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "x", [], ["x"], [[]], {}, {"type": 1}, {"type": []}]
)


@settings(max_examples=7 * settings().max_examples)
@given(st.sampled_from(places(valid_body())[1:]), ANY_JSON)
def test_a_body_that_is_nonsense_gets_an_answer_too(path: tuple[Any, ...], nonsense: Any) -> None:
    body = valid_body()
    target: Any = body
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = nonsense
    assert isinstance(violations(body), list)
