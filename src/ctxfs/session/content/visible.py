"""Untrusted text for a screen: what a terminal or a browser would obey becomes visible instead. Pure."""

import re

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible_text(text: str) -> str:
    r"""``text`` with escapes (``\x1b``, ``\u202e``) for control characters, turns of direction and lone surrogates.

    Tabs and newlines stay.
    """
    return _OBEYED.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if found[0] < "\xff" else f"\\u{ord(found[0]):04x}", text
    )
