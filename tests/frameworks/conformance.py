"""The conformance suite of ``ctxfs.testing`` for adapters: each part of a history is a message of the framework."""

from collections.abc import Sequence
from typing import Any

from ctxfs.context import History, Part
from ctxfs.testing.history_conformance import HistoryConformance


class AdapterConformance(HistoryConformance):
    """Subclass it with the framework's messages and the adapter's way to send them.

    A message that comes back as the same object is the part that it was made of: frameworks that have no word for
    content blocks show their text, and what is not replaced must not be touched.
    """

    seeds = 3

    def message(self, part: Part) -> Any:
        """The framework's message for one part."""
        raise NotImplementedError

    def sent(self, history: History, messages: list[Any], branch: str) -> Sequence[Any]:
        """What the adapter sends for ``messages``, one for one."""
        raise NotImplementedError

    def content(self, part: Part, message: Any) -> Any:
        """The content that stands in a message which the adapter made in the place of that of ``part``."""
        raise NotImplementedError

    def rewritten(self, history: History, parts: Sequence[Part], branch: str) -> Sequence[Any]:
        """See ``HistoryConformance``."""
        messages = [self.message(part) for part in parts]
        sent = self.sent(history, list(messages), branch)
        assert len(sent) == len(messages)
        found = []
        for part, old, new in zip(parts, messages, sent, strict=True):
            found.append(part.content if new is old else self.content(part, new))
        return found


def text_of(part: Part) -> str:
    """The text of a part that is a text, or one block of text."""
    content: Any = part.content
    return content if isinstance(content, str) else "".join(str(block.get("text", "")) for block in content)


def with_text(part: Part, text: str) -> Any:
    """The content of a part with another text, in the same form: thinking that stands before it stays."""
    content: Any = part.content
    if isinstance(content, str):
        return text
    return [*(block for block in content if block["type"] != "text"), {"type": "text", "text": text}]
