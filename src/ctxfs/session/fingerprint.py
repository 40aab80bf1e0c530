"""How a part of a history is recognized: by its kind, its call's id, and the SHA-256 of its content. Pure."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import Content
from ctxfs.session.records import Decided


class Key(NamedTuple):
    """The key of a decision about a part; ``call_id`` is "" if the framework has none."""

    kind: str
    call_id: str
    sha256: str


_sorted = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode
"""``json.dumps`` would make an encoder for each content."""


_WHOLE = (str, dict, Mapping)
"""Types that are not blocks; dict comes before ``Mapping``, since checking for the latter is many times slower."""


def sha256_of(content: Any) -> str:
    """The hash of a content: a text, blocks, or the arguments of a call.

    One text block is hashed as its text, since frameworks write the one for the other, and the order of keys does not
    count, since databases change it.
    """
    if not isinstance(content, _WHOLE) and len(content) == 1 and content[0].keys() == {"type", "text"}:
        content = content[0]["text"]
    text = content if isinstance(content, str) else _sorted(content)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def decided_at_source(key: Key, item: ContextItem, content: Content, tokens: int, *, reason: str, tool: str) -> Decided:
    """The record of a result, known by ``key``, that was replaced before it was in any history.

    ``item`` holds the result; ``content``, of ``tokens``, replaces it from then on.
    """
    return Decided(
        kind=key.kind,
        call_id=key.call_id,
        sha256=key.sha256,
        item_id=item.id,
        content=content,
        tokens_before=item.content_tokens,
        tokens=tokens,
        reason=reason,
        tool=tool,
        sent=False,
    )
