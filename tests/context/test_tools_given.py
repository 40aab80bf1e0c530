"""The definitions of tools that a loop of your own gives a context."""

import logging
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Context


@pytest.mark.parametrize(
    ("tools", "is_told"),
    [
        ([{"name": "log"}, {"name": "Read"}], False),
        ([{"type": "function", "function": {"name": "Read"}}], False),
        ([{"type": "web_search"}], False),
        ([], False),
        ([{"name": "log"}], True),
        ([{"type": "function", "function": {"name": "log"}}], True),
    ],
)
def test_tools_that_cannot_open_placeholders_are_warned_of(
    tmp_path: Path, tools: list[dict[str, Any]], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    context = Context("one", root_path=tmp_path)
    with caplog.at_level(logging.WARNING, "ctxfs.context"):
        context.tools = tools
    assert ("none is named 'Read'" in caplog.text) is is_told
    assert context.tools == tuple(tools)
