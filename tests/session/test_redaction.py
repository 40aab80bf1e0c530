"""What is left of a text after a redaction: never a part of a match, whatever the patterns."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import ConfigError
from ctxfs.messages.messages import ToolCall
from ctxfs.session.redaction import REDACTED, Redaction, erased

CALL = ToolCall(id="c", name="tool", arguments={})


def test_a_redaction_sees_what_is_shown() -> None:
    redaction = Redaction(patterns=("a+", "secret"))
    assert redaction.shown("baab\x1b") == f"b{REDACTED}b\\x1b"
    assert redaction.content("the secret") == f"the {REDACTED}"
    hidden = Redaction(contents=True)
    assert (hidden.content("text"), hidden.content(""), hidden.shown("name")) == (REDACTED, "", "name")
    with pytest.raises(ConfigError, match="RE2"):
        Redaction(patterns=("(?<=a)b",))
    with pytest.raises(ConfigError, match="use a list"):
        Redaction(patterns="abc")


def test_no_pattern_hides_a_match_of_another_one() -> None:
    redaction = Redaction(patterns=(r"\d{4}", r"key=\w+", "(?s)BEGIN.*?END"))
    assert redaction.text("key=ab1234cd, BEGIN 5678\nx END.") == f"{REDACTED}, {REDACTED}."


@given(st.text("abc\ud800", max_size=30), st.lists(st.sampled_from(["a", "ab+", "b*", "(?s)a.*?c", "cb|ba", "^"])))
def test_every_match_in_the_original_text_is_gone(text: str, patterns: list[str]) -> None:
    matched = {
        place
        for pattern in patterns
        for found in re.finditer(pattern, text.replace("\ud800", "\ufffd"))
        for place in range(*found.span())
    }
    kept = "".join(char for place, char in enumerate(text) if place not in matched)
    assert Redaction(patterns=patterns).text(text).replace(REDACTED, "") == kept


def test_results_of_tools_lose_what_matches_in_texts_but_no_bytes_of_images() -> None:
    redact = Redaction(patterns=["secret"])
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "secret"}}
    content = ({"type": "text", "text": "a secret \ud800"}, image)
    assert redact(CALL, content) == ({"type": "text", "text": f"a {REDACTED} \ud800"}, image)
    assert redact(CALL, "no secret") == f"no {REDACTED}"
    assert Redaction(contents=True)(CALL, content) == REDACTED


def test_what_is_erased_is_never_longer_than_it_was() -> None:
    assert erased([]) == ""
    assert erased("ab") == "[e"
    assert erased([{"type": "image"}]) == "[erased]"
    assert erased({"a": 1}) == {}


def test_data_keeps_its_kinds_and_numbers() -> None:
    redact = Redaction(patterns=["secret|result"])
    data = {"type": "result", "n": 3, "list": ["secret", ("secret",), None]}
    assert redact.value(data) == {"type": "result", "n": 3, "list": [REDACTED, (REDACTED,), None]}


def test_overlapping_matches_become_one() -> None:
    assert Redaction(patterns=["abc", "bcd", "b"]).text("xabcdx") == f"x{REDACTED}x"


def test_calls_keep_their_names_when_they_are_erased() -> None:
    call = {"type": "tool_use", "id": "c", "name": "log", "input": {"a": 1}}
    assert erased([{"type": "text", "text": "I look"}, call]) == [{**call, "input": {}}]
