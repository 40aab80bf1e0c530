"""Hypothesis strategies for contents of every kind."""

from typing import Any

from hypothesis import strategies as st

from ctxfs.messages.messages import Content

ANY_TEXT = st.text(st.characters(codec=None), max_size=60)
EDGES = st.sampled_from(
    [
        "",
        "\n",
        "\n\n",
        "a",
        "a\n",
        "a\nb",
        "\r\n",
        "\x00",
        '"\\',
        "\u2028\x85",
        "\ud83d\ude00",
        "\ud800",
        "é😀",
        "\x1b[0m",
    ]
)
TEXTS = st.one_of(EDGES, ANY_TEXT, st.lists(st.one_of(EDGES, ANY_TEXT), max_size=8).map("\n".join))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ANY_TEXT, inner, max_size=4)),
    max_leaves=8,
)
TYPES = ANY_TEXT.filter(lambda name: name not in ("text", "tool_use", "tool_result"))
BLOCKS = st.one_of(
    TEXTS.map(lambda text: {"type": "text", "text": text}),
    st.builds(lambda fields, kind: {**fields, "type": kind}, st.dictionaries(ANY_TEXT, JSON, max_size=4), TYPES),
    st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}),
)
CONTENTS: st.SearchStrategy[Content] = st.one_of(TEXTS, st.lists(BLOCKS, max_size=4).map(tuple))
