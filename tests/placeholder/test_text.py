from ctxfs.eviction.placeholder.text import render, render_range, without_large_arguments
from ctxfs.messages.items import ContentRange

PATH = "/home/user/.agent/context/session_20240115_123456_abc123/tool_result/Read/call_abc123.json"
THREE_LINES = f"[Content offloaded]\nPath: {PATH}\nUse Read tool to view details."


def test_the_placeholder_is_the_three_lines_of_the_spec_and_nothing_else() -> None:
    assert render(PATH) == THREE_LINES


def test_the_digest_follows_after_a_newline() -> None:
    assert render(PATH, "5 lines, 12 tokens.") == f"{THREE_LINES}\n5 lines, 12 tokens."


def test_a_read_back_points_to_the_first_file_and_says_how_to_read_the_range_again() -> None:
    placeholder = render_range(ContentRange(item_id="call_abc123", path=PATH, first_line=201, last_line=400))
    assert placeholder.startswith(THREE_LINES + "\n")
    assert "201-400" in placeholder
    assert "offset=201, limit=200" in placeholder


def test_an_argument_points_to_the_one_that_names_the_file() -> None:
    large = "x" * 201
    shown = without_large_arguments({"small": 1, "content": large, "more": [large]}, "the placeholder")
    assert shown == {"small": 1, "content": "the placeholder", "more": "[Content offloaded] with content"}
    assert without_large_arguments({"small": "x" * 200}, "the placeholder") == {"small": "x" * 200}


def test_where_no_tool_is_known_that_opens_it_the_file_is_named_and_no_tool() -> None:
    expected = f"[Content offloaded]\nPath: {PATH}\nIf you have a tool that opens files, it shows the details."
    assert render(PATH, reader=None) == expected
    assert render(PATH, reader=None, short="stored/abc") == expected, "a short name is found by the tools of ctxfs"
    lines = render_range(ContentRange(item_id="c", path=PATH, first_line=1, last_line=2), reader=None, short="stored/c")
    assert lines.startswith(f"{expected}\n")
