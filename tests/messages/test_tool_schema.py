"""A tool as each API takes it."""

import pytest

from ctxfs.messages import ToolSchema
from ctxfs.messages.wire_names import short, tool_names
from ctxfs.testing.chat_server import violations as chat_violations
from ctxfs.testing.invariants import violations as messages_violations
from ctxfs.testing.responses_server import violations as responses_violations

SCHEMA = {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]}
TOOL = ToolSchema(name="read_log", description="Read the log of a day", input_schema=SCHEMA)


def test_each_api_takes_the_tool_in_its_form() -> None:
    question = [{"role": "user", "content": "Hi"}]
    messages = {"model": "m", "max_tokens": 1, "messages": question, "tools": [TOOL.for_messages()]}
    assert messages_violations(messages) == []
    assert chat_violations({"model": "m", "messages": question, "tools": [TOOL.for_chat()]}) == []
    assert responses_violations({"model": "m", "input": question, "tools": [TOOL.for_responses()]}) == []


@pytest.mark.parametrize("form", ["for_messages", "for_chat", "for_responses"])
def test_what_is_returned_may_be_changed(form: str) -> None:
    getattr(TOOL, form)().clear()
    assert getattr(TOOL, form)()
    assert "integer" in str(getattr(TOOL, form)())


def test_the_names_of_tools_are_found_in_each_apis_form() -> None:
    definitions = [
        {"name": "a"},
        {"type": "function", "function": {"name": "b"}},
        {"type": "web_search"},
        "c",
        {"name": 5},
    ]
    assert tool_names(definitions) == ["a", "b"]


def test_the_tools_inside_of_a_namespace_have_names_and_it_has_none() -> None:
    server = {"type": "namespace", "name": "mcp__files", "tools": [{"type": "function", "name": "context_read"}]}
    assert tool_names([{"type": "function", "name": "a"}, server]) == ["a", "context_read"]


def test_a_name_that_no_provider_takes_is_cut_for_a_log() -> None:
    assert short("a" * 128) == "a" * 128
    cut = short("a" * 129)
    assert len(cut) == 128
    assert cut != short("a" * 130)
