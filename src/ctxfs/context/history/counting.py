"""Token counts, remembered by the hash of the text, so that nothing is counted again after a restart. Pure."""

import hashlib
from collections.abc import Mapping

from ctxfs.messages.tokens import TokenCounter

NOTED_CHARS = 1_000
"""Shorter texts are not remembered: counting them is faster than looking them up."""

_DIGITS = 16


class NotingCounter:
    """Counts as ``counter`` does, and remembers the counts of long texts.

    ``known``: counts that were recorded before, by the first digits of the text's SHA-256. Further counts are also in
    ``new`` until they are taken from there.
    """

    def __init__(self, counter: TokenCounter, known: Mapping[str, int]) -> None:
        self._counter = counter
        self._known = dict(known)
        self.new: dict[str, int] = {}

    def count(self, text: str) -> int:
        """The tokens of ``text``."""
        if len(text) < NOTED_CHARS:
            return self._counter.count(text)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        tokens = self._known.get(digest)
        if tokens is None:
            tokens = self._counter.count(text)
            self._known[digest] = tokens
            self.new[digest] = tokens
        return tokens

    def learn(self, known: Mapping[str, int]) -> None:
        """Take in counts that were recorded elsewhere."""
        self._known.update(known)
