"""What the model sees of a result that it has seen before, as a value."""

from dataclasses import replace

import pytest

from ctxfs.errors import ConfigError
from ctxfs.eviction import OffloadPolicy
from ctxfs.eviction.again import Earlier, may_be_told, new_lines, told_again
from ctxfs.eviction.offload_plan import Offload
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContentRange, ContextItem
from ctxfs.messages.messages import ToolMessage, UserMessage
from session_items import make_item

COUNTER = CharsCounter()
LINES = [f"line {n} of the file" for n in range(412)]
TEXT = "\n".join(LINES)


def result(content: str = TEXT, tool: str = "look", item_id: str = "c9") -> ContextItem:
    return make_item(item_id, ToolMessage(item_id, tool, content), COUNTER.count(content))


def told(item: ContextItem, earlier: Earlier, *tools: str) -> Offload | None:
    return told_again(item, earlier, path="/s/look/c9.json", tools=tools, counter=COUNTER)


def test_an_equal_result_is_one_line_that_names_the_earlier_one_and_opens_the_new_one() -> None:
    offload = told(result(), Earlier("c7", "", is_same=True), "context_read", "Read")
    assert offload is not None
    assert offload.placeholder == (
        '[The same as c7, 412 lines, unchanged. To read it: Read(file_path="/s/look/c9.json")]'
    )
    assert offload.item_id == "c9"
    assert offload.tokens_after == COUNTER.count(offload.placeholder)
    assert offload.reason == "repeats c7 (setting: tell_repeats)"


@pytest.mark.parametrize(
    ("tools", "way"),
    [
        (("context_tail", "context_read"), 'context_read(ref="c9", offset=1)'),
        (("mcp__ctxfs__context_read",), 'mcp__ctxfs__context_read(ref="c9", offset=1)'),
        (("context_grep",), 'context_grep(ref="c9", pattern="Error|Exception")'),
    ],
)
def test_the_line_names_a_tool_of_the_request(tools: tuple[str, ...], way: str) -> None:
    offload = told(result(), Earlier("c7", "", is_same=True), *tools)
    assert offload is not None
    assert offload.placeholder.endswith(f"To read it: {way}]")


def test_without_a_tool_that_opens_it_nothing_is_told() -> None:
    assert told(result(), Earlier("c7", "", is_same=True)) is None


def test_a_newer_version_is_told_by_its_new_lines_and_never_by_the_old_ones() -> None:
    old = "\n".join([*LINES[:200], "password: hunter2", *LINES[201:]])
    offload = told(result(), Earlier("c7", old, is_same=False), "Read")
    assert offload is not None
    [said, hunk, line] = offload.placeholder.split("\n")
    assert said == (
        "[The same as c7, with these lines instead of those that it had there. "
        'To read it: Read(file_path="/s/look/c9.json")]'
    )
    assert hunk == "@@ -201,1 +201,1 @@"
    assert line == "+line 200 of the file"
    assert offload.reason == "a newer version of c7 (setting: tell_repeats)"


def test_what_has_changed_throughout_is_sent_whole() -> None:
    old = "\n".join(reversed(LINES))
    assert told(result(), Earlier("c7", old, is_same=False), "Read") is None


@pytest.mark.parametrize(
    ("old", "new", "hunk"),
    [
        ("a\nb\nc", "a\nX\nY\nc", "@@ -2,1 +2,2 @@\n+X\n+Y"),
        ("a\nc", "a\nb\nc", "@@ -1,0 +2,1 @@\n+b"),
        ("a\nb\nc", "a\nc", "@@ -2,1 +1,0 @@"),
        ("a", "a\nb", "@@ -1,0 +2,1 @@\n+b"),
        ("a\na", "a\na\na", "@@ -2,0 +3,1 @@\n+a"),
        ("a\nb", "c\nd", "@@ -1,2 +1,2 @@\n+c\n+d"),
        ("", "a", "@@ -1,1 +1,1 @@\n+a"),
    ],
)
def test_one_hunk_reaches_from_the_first_to_the_last_difference(old: str, new: str, hunk: str) -> None:
    assert new_lines(old, new) == hunk


def test_errors_images_short_results_and_what_was_read_back_are_seen_whole() -> None:
    assert may_be_told(result())
    assert not may_be_told(result("short"))
    assert not may_be_told(result(tool="mcp__ctxfs__context_read"))
    assert not may_be_told(make_item("u", UserMessage(TEXT), COUNTER.count(TEXT)))
    failed = result()
    assert isinstance(failed.message, ToolMessage)
    assert not may_be_told(replace(failed, message=replace(failed.message, is_error=True)))
    source = ContentRange(item_id="c1", path="/s/c1", first_line=1, last_line=2)
    assert not may_be_told(replace(result(), source=source))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    assert not may_be_told(replace(result(), message=ToolMessage("c9", "look", (image,))))


def test_the_setting_is_a_flag_that_the_journal_records_and_that_contradicts_results_that_stay() -> None:
    policy = OffloadPolicy(tell_repeats=True)
    assert OffloadPolicy.from_mapping(policy.to_mapping()) == policy
    assert not OffloadPolicy().tell_repeats
    with pytest.raises(ConfigError, match="tell_repeats"):
        OffloadPolicy(tell_repeats="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tell_repeats has no effect: type_enabled says that tool results stay"):
        OffloadPolicy(tell_repeats=True, type_enabled={"tool_result": False})
