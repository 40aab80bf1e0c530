"""By what a part of a history is known again: its kind, the id of its call, and the SHA-256 of its content. Pure."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Key", "sha256_of"]


class Key(NamedTuple):
    """What a decision about a part is found by; ``call_id`` is "" where the framework has none."""

    kind: str
    call_id: str
    sha256: str


def sha256_of(content: Any) -> str:
    """The hash of a content: a text, blocks, or the arguments of a call.

    One text block is hashed as its text, since frameworks write the one for the other, and the order of keys does not
    count, since databases change it.
    """
    if not isinstance(content, str | Mapping) and len(content) == 1 and content[0].keys() == {"type", "text"}:
        content = content[0]["text"]
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
