"""A preview as a value: what is over the limit, what it says, and when there is none."""

from dataclasses import replace

import pytest

from ctxfs.errors import ConfigError
from ctxfs.eviction.preview import PREVIEW_TOKENS, Preview, PreviewRule, check_preview_above, named_by
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContentRange, ContextItem
from ctxfs.messages.messages import Content, ToolMessage, UserMessage
from session_items import make_item

COUNTER = CharsCounter()
RULE = PreviewRule(preview_above_tokens=2_000)
TEXT = "".join(f"line {n} of the log\n" for n in range(1_000))


def result(content: str = TEXT, tool: str = "look") -> ContextItem:
    return make_item("c1", ToolMessage("c1", tool, content), COUNTER.count(content))


def path_of(name: str) -> str:
    return f"/s/{name}"


@pytest.mark.parametrize(
    ("above", "window", "limit"),
    [(8_000, None, 8_000), (8_000, 200_000, 8_000), (8_000, 40_000, 5_000), (8_000, 1, 1_000)],
)
def test_the_limit_is_at_most_an_eighth_of_the_window_and_at_least_a_preview(
    above: int, window: int | None, limit: int
) -> None:
    rule = PreviewRule(preview_above_tokens=above, window_tokens=window)
    assert rule.above_tokens == limit
    assert ("an eighth of the window" in rule.reason) is (limit < above)
    assert f"over {limit:,} tokens" in rule.reason


def test_what_is_too_short_to_be_over_is_known_without_counting() -> None:
    assert not RULE.may_be_over("x" * 2_000)
    assert RULE.may_be_over("x" * 2_001)
    assert RULE.may_be_over("€" * 700)


def test_a_preview_shows_size_head_and_tail_and_how_to_read_on() -> None:
    preview = Preview(rule=RULE, tools=("Read",))
    leaving = preview.decide(result(), path_of=path_of, counter=COUNTER)
    assert leaving is not None
    assert leaving.item.placeholder is not None
    assert leaving.item.placeholder.startswith("[Content offloaded]")
    offload = leaving.offload
    assert offload.reason == RULE.reason
    assert offload.tokens_after == COUNTER.count(offload.placeholder) <= PREVIEW_TOKENS
    assert offload.placeholder.split("\n")[:2] == [
        "[Output stored in full: look, call c1]",
        f"Size: {COUNTER.count(TEXT):,} tokens, {len(TEXT):,} characters, 1,000 lines",
    ]
    for shown in (
        "\n1: line 0 of the log\n",
        "\n1000: line 999 of the log",
        f'Read(file_path="/s/{leaving.item.name}")',
    ):
        assert shown in offload.placeholder


@pytest.mark.parametrize(
    "item",
    [
        result("short"),
        result(tool="context_grep"),
        result(tool="mcp__ctxfs__context_read"),
        result(tool="mcp__ctxfs__Context_Read"),
        replace(result(), source=ContentRange(item_id="c0", path="/s/c0", first_line=1, last_line=2)),
        make_item("m1", UserMessage(TEXT), COUNTER.count(TEXT)),
        make_item("c1", ToolMessage("c1", "look", ({"type": "image", "source": {"type": "url"}},)), 9_000),
    ],
)
def test_what_is_small_or_an_image_or_was_read_back_is_never_previewed(item: ContextItem) -> None:
    preview = Preview(rule=RULE, tools=("Read",))
    assert not preview.is_over(item)
    assert preview.decide(item, path_of=path_of, counter=COUNTER) is None


def test_without_a_tool_that_opens_it_nothing_is_previewed() -> None:
    preview = Preview(rule=RULE, tools=())
    assert preview.is_over(result())
    assert preview.decide(result(), path_of=path_of, counter=COUNTER) is None
    assert "no tool of the request opens" in RULE.no_reader


def repeated(item: ContextItem, *tools: str) -> str:
    """The line that is sent of an item which equals the result of c0; "": it is sent whole."""
    seen = make_item("c0", ToolMessage("c0", "look", item.message.content), item.content_tokens)
    offload = Preview(rule=RULE, tools=tools).repeat(item, seen, "/s/c1.json", COUNTER)
    if offload is None:
        return ""
    assert offload.tokens_after == COUNTER.count(offload.placeholder) < offload.tokens_before
    assert offload.reason == "the same as c0 (setting: repeats)"
    return offload.placeholder


@pytest.mark.parametrize(
    ("tools", "way"),
    [
        (("context_read", "Read"), 'Read(file_path="/s/c1.json")'),
        (("context_tail", "mcp__ctxfs__context_read"), 'mcp__ctxfs__context_read(ref="c1", offset=1)'),
    ],
)
def test_a_result_that_comes_again_is_one_line_that_names_a_tool_which_shows_it(
    tools: tuple[str, ...], way: str
) -> None:
    assert repeated(result(), *tools) == f"[The same as c0, 1,000 lines, unchanged. To read it: {way}]"


def told(text: str, before: Content, *, rule: PreviewRule = RULE) -> str:
    """What is sent of a result of ``text`` whose call returned ``before`` earlier; "": it is sent whole."""
    item = result(text)
    seen = make_item("c0", ToolMessage("c0", "look", before), 9)
    offload = Preview(rule=rule, tools=("Read",)).repeat(item, seen, "/s/c1.json", COUNTER)
    if offload is None:
        return ""
    assert offload.tokens_after == COUNTER.count(offload.placeholder)
    assert offload.tokens_after <= offload.tokens_before // 2
    assert offload.reason == "changed since c0 (setting: repeats)"
    assert named_by(offload.reason) == "c0"
    return offload.placeholder


def test_of_a_newer_version_the_diff_is_sent_where_it_is_short() -> None:
    changed = TEXT.replace("line 500 of", "the line 500 of")
    title, *hunk = told(changed, TEXT).split("\n")
    what = "a unified diff from that result to this one, 1,000 lines"
    assert title == f'[Changed since c0: {what}. To read it whole: Read(file_path="/s/c1.json")]'
    assert hunk[0] == "@@ -498,7 +498,7 @@"
    assert told(changed, ({"type": "text", "text": TEXT},))
    assert not told(TEXT.replace("line", "row"), TEXT), "every line has changed"
    assert not told(TEXT, ({"type": "text", "text": TEXT},)), "another shape of the same text"
    assert not told(changed, ({"type": "text", "text": TEXT}, {"type": "image", "source": {"type": "url"}}))
    assert not told("one\ntwo\n", "one\n2\n"), "it is hardly shorter"


@pytest.mark.parametrize(("changed", "is_told"), [(230, True), (260, False)])
def test_a_diff_is_sent_up_to_half_of_the_text(changed: int, is_told: bool) -> None:
    lines = TEXT.splitlines()
    new = "\n".join([line.swapcase() if n < changed else line for n, line in enumerate(lines)])
    assert bool(told(new, TEXT, rule=PreviewRule(preview_above_tokens=100_000))) is is_told


def test_a_diff_takes_the_place_of_a_preview_only_where_it_is_no_longer() -> None:
    lines = TEXT.splitlines()
    every_twentieth = "\n".join([f"the {line}" if n % 20 == 0 else line for n, line in enumerate(lines)])
    assert not told(every_twentieth, TEXT)
    assert told(every_twentieth, TEXT, rule=PreviewRule(preview_above_tokens=100_000))


@pytest.mark.parametrize("tools", [(), ("context_list",), ("context_grep", "context_tail")])
def test_without_a_tool_that_shows_all_of_it_no_result_is_a_line(tools: tuple[str, ...]) -> None:
    assert not repeated(result(), *tools)


@pytest.mark.parametrize(
    "item",
    [
        result("short"),
        result(tool="context_query"),
        result(tool="mcp__ctxfs__history_read"),
        result(tool="mcp__ctxfs__History_Read"),
        replace(result(), message=ToolMessage("c1", "look", TEXT, is_error=True)),
        replace(result(), source=ContentRange(item_id="c0", path="/s/c0", first_line=1, last_line=2)),
        make_item("m1", UserMessage(TEXT), COUNTER.count(TEXT)),
        make_item("c1", ToolMessage("c1", "look", ({"type": "image", "source": {"type": "url"}},)), 9_000),
    ],
)
def test_what_is_short_an_error_an_image_or_was_read_back_is_never_a_line(item: ContextItem) -> None:
    assert not repeated(item, "Read")


def test_a_line_whose_placeholder_would_not_be_smaller_is_not_sent() -> None:
    seen = make_item("c0", ToolMessage("c0", "look", TEXT), COUNTER.count(TEXT))
    path = "/" + "d" * 4 * COUNTER.count(TEXT)
    preview = Preview(rule=RULE, tools=("context_read",), reader="Read")
    assert preview.decide_repeat(result(), seen, path=path, counter=COUNTER) is None
    assert preview.decide_repeat(result("short"), seen, path=path, counter=COUNTER) is None


def test_json_is_named_and_a_path_that_is_too_long_leaves_no_room_for_passages() -> None:
    json = "[" + ", ".join(f'{{"id": {n}}}' for n in range(2_000)) + "]"
    preview = Preview(rule=RULE, tools=("Read",))
    text = preview.offload(result(json), "/s/short", COUNTER).placeholder
    assert ", 1 line, JSON\n" in text
    assert "First lines:\n1: [{" in text
    assert "First lines:" not in preview.offload(result(json), "/s/" + "d" * 5_000, COUNTER).placeholder


def test_a_limit_is_none_or_at_least_the_size_of_a_preview() -> None:
    check_preview_above(None)
    check_preview_above(PREVIEW_TOKENS)
    with pytest.raises(ConfigError, match=r"^preview_above_tokens is 999: "):
        check_preview_above(PREVIEW_TOKENS - 1)


def test_a_placeholder_that_is_not_smaller_leaves_the_result_whole() -> None:
    tokens = COUNTER.count(TEXT)
    decided = Preview(rule=RULE, tools=("Read",)).decide(
        result(), path_of=lambda _: "/" + "d" * 4 * tokens, counter=COUNTER
    )
    assert decided is None


def test_a_preview_of_the_beginning_of_an_output_says_that_it_is_in_part() -> None:
    preview = Preview(rule=RULE, tools=("Read",))
    leaving = preview.decide(replace(result(), full_bytes=10**9), path_of=path_of, counter=COUNTER)
    assert leaving is not None
    assert f"in part, the first {len(TEXT):,} of 1,000,000,000 bytes" in leaving.offload.placeholder
