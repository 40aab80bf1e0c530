"""What the model sees of a new result that is too large to be sent whole: a preview. Pure.

A result of up to a limit in tokens is sent whole. A larger one is stored in full, and a preview takes its place: size,
outline, head, lines with errors and tail, and how to read the rest. This depends on the result's size and kind alone:
it is the same for every tool, every model and every price.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ctxfs.errors.checks import require_int
from ctxfs.eviction.offload_plan import EagerOffload, Offload
from ctxfs.eviction.placeholder.attach import with_placeholder
from ctxfs.eviction.placeholder.digest import outline_of
from ctxfs.eviction.placeholder.excerpts import Snippets
from ctxfs.eviction.placeholder.lines import line_count, plural
from ctxfs.eviction.placeholder.text import (
    READ_TOOL,
    READING_TOOLS,
    own_name,
    render_advice,
    render_changed,
    render_materialized,
    render_repeat,
    way_to_read,
)
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import ToolMessage, has_media, part_of, readable_text
from ctxfs.messages.names import safe_name
from ctxfs.messages.tokens import TokenCounter
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.tokens import is_json
from ctxfs.text.line_diff import unified_diff

DEFAULT_PREVIEW_ABOVE_TOKENS: Final = 8_000
"""On recorded sessions previews above 2,000 or 4,000 multiply the read-backs, and above 16,000 they change nothing."""

PREVIEW_TOKENS: Final = 1_000
"""A preview has at most this many tokens, so a result of this size is always sent whole."""

_WINDOW_PARTS: Final = 8
"""A result of more than this part of the window is previewed in any case: a few of them would fill it."""

_OUTLINE_TOKENS: Final = 400
"""The most that the shape or the outline takes of a preview."""

_PASSAGE_LINES: Final = 40
_PASSAGE_BYTES: Final = 1_800
"""The most that head, errors and tail may take, each. They shrink until the preview fits."""

_REPEAT_SAVES_TOKENS: Final = 50
"""A result that comes again is sent whole unless the line that replaces it saves at least this."""

_DIFF_PART: Final = 2
"""A diff is sent if it is shorter than this part of the text: the model reads the text by both, and the diff of the
version after this one has this one's changes again."""

_OWN_TOOLS: Final = ("context_", "history_")
"""How the names of ctxfs's own tools begin, which show again what is stored."""

_REPEATS: Final = re.compile(r"(?:the same as|changed since) (\S+) \(setting: repeats\)")
"""The reason for which a line or a diff is sent, with the id of the item that it names; see ``Preview.repeat``."""

PREVIEWED: Final = "previewed: "
"""How the reason of a preview begins."""

_SHRINK: Final = 0.8
_STEPS: Final = 16


def check_preview_above(preview_above_tokens: int | None) -> None:
    """Raise ``ConfigError`` unless it is None, or at least the size of a preview."""
    if preview_above_tokens is not None:
        require_int("preview_above_tokens", preview_above_tokens, at_least=PREVIEW_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRule:
    """From which size on a result is previewed, and why. ``window_tokens``: None means no limit."""

    preview_above_tokens: int
    window_tokens: int | None = None

    @property
    def above_tokens(self) -> int:
        """A result of up to so many tokens is sent whole."""
        if self.window_tokens is None:
            return self.preview_above_tokens
        return min(self.preview_above_tokens, max(PREVIEW_TOKENS, self.window_tokens // _WINDOW_PARTS))

    @property
    def reason(self) -> str:
        """Why a result is previewed, as the journal records it."""
        window = ", an eighth of the window" if self.above_tokens < self.preview_above_tokens else ""
        return f"{PREVIEWED}over {self.above_tokens:,} tokens{window} (setting: preview_above_tokens)"

    def may_be_over(self, text: str) -> bool:
        """Whether ``text`` may be over the limit; it is not counted, but no token is shorter than a byte."""
        return len(text.encode("utf-8", "surrogatepass")) > self.above_tokens

    @property
    def no_reader(self) -> str:
        """What a user is told if no tool of a request opens what would be stored."""
        return (
            f"a result of over {self.above_tokens:,} tokens is sent whole, since no tool of the request opens what "
            "ctxfs stores: give the model ctxfs's reading tools, or set preview_above_tokens=None"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The eager policy behind ``preview_above_tokens``.

    ``tools``: names of those tools of the request that open what was stored; without one, nothing is previewed.
    ``reader``: the one of them that opens files.
    Images and documents are seen whole. What was read back is bounded already, and is not previewed again.
    """

    rule: PreviewRule
    tools: Collection[str]
    reader: str = READ_TOOL

    def is_over(self, item: ContextItem) -> bool:
        """Whether the result is too large to be sent whole."""
        if item.content_tokens <= self.rule.above_tokens:  # most are
            return False
        return _is_new_text(item) and own_name(item.tool_name or "") not in READING_TOOLS

    def decide(self, item: ContextItem, *, path_of: Callable[[str], str], counter: TokenCounter) -> EagerOffload | None:
        """Decide whether the item is evicted before it is ever sent; None: it is not."""
        if not self.tools or not self.is_over(item):
            return None
        path = path_of(item.name)
        return self._eager(item, self.offload(item, path, counter), counter)

    def decide_repeat(
        self, item: ContextItem, seen: ContextItem, *, path: str, counter: TokenCounter
    ) -> EagerOffload | None:
        """Decide whether a line or a diff is sent of an item, instead of all of it; see ``repeat``. None: it is not."""
        offload = self.repeat(item, seen, path, counter)
        return None if offload is None else self._eager(item, offload, counter)

    def _eager(self, item: ContextItem, offload: Offload, counter: TokenCounter) -> EagerOffload | None:
        item = with_placeholder(item, path=offload.path, counter=counter, reader=self.reader)
        if item.placeholder is None:
            return None
        chars = len(readable_text(item.message.content))
        return EagerOffload(item=item, chars=chars, offload=offload)

    def repeat(self, item: ContextItem, seen: ContextItem, path: str, counter: TokenCounter) -> Offload | None:
        """How a result is stored in ``path`` (absolute) and sent as what has changed since ``seen``.

        ``seen``: a result that the model sees: an equal one, of which a line says so, or an earlier version.

        None: it stays. It is an error, an image or an answer of a tool of ctxfs; or no tool of the request opens it; or
        the line would hardly be shorter, or the diff not by half.
        """
        message = item.message
        earlier = seen.message
        if not isinstance(message, ToolMessage) or message.is_error or not _is_new_text(item):
            return None
        assert isinstance(earlier, ToolMessage)
        if own_name(message.tool_name).startswith(_OWN_TOOLS):
            return None
        way = way_to_read(item.id, path, self.tools, reader=self.reader)
        if not way:
            return None
        content = readable_text(message.content)
        lines = line_count(content)
        most_tokens = item.content_tokens - _REPEAT_SAVES_TOKENS
        if earlier.content == message.content:
            why = "the same as"
            text = render_repeat(earlier.tool_call_id, lines, way)
        else:
            why = "changed since"
            diff = None
            if _is_new_text(seen):
                most_chars = len(content) // _DIFF_PART
                diff = unified_diff(readable_text(earlier.content), content, most_chars=most_chars)
            if not diff:
                return None
            text = render_changed(earlier.tool_call_id, lines, way, diff)
            most_tokens = min(most_tokens, item.content_tokens // _DIFF_PART)
            if self.is_over(item):
                most_tokens = min(most_tokens, PREVIEW_TOKENS)
        tokens = counter.count(text)
        if tokens > most_tokens:
            return None
        return Offload(
            item_id=item.id,
            path=path,
            placeholder=text,
            tokens_before=item.token_count,
            tokens_after=tokens,
            reason=f"{why} {seen.id} (setting: repeats)",
        )

    def offload(self, item: ContextItem, path: str, counter: TokenCounter) -> Offload:
        """How a result that is over the limit is stored in the file ``path`` (absolute) and previewed."""
        text = self._text(item, path, counter)
        return Offload(
            item_id=item.id,
            path=path,
            placeholder=text,
            tokens_before=item.token_count,
            tokens_after=counter.count(text),
            reason=self.rule.reason,
        )

    def _text(self, item: ContextItem, path: str, counter: TokenCounter) -> str:
        message = item.message
        assert isinstance(message, ToolMessage)
        text = readable_text(message.content)
        snippets = Snippets(text)
        size = [
            plural(item.content_tokens, "token"),
            plural(len(text), "character"),
            plural(snippets.line_count, "line"),
        ]
        if is_json(text):
            size.append("JSON")
        hint: Mapping[str, Any] = {"tool": message.tool_name, "call_id": message.tool_call_id}
        ref = json_codec.dumps_text({"id": item.id, "kind": "artifact", "hint": hint})
        title = f"{safe_name(message.tool_name)}, call {item.id}"
        stored = "in full"
        if item.full_bytes:
            stored = f"in part, {part_of(len(text.encode('utf-8', 'surrogatepass')), item.full_bytes)}"
        advice = render_advice(item.id, path, self.tools, reader=self.reader)
        outline, snippets.more_errors = outline_of(text, snippets.line_count, _OUTLINE_TOKENS, counter)

        def render(passages: Mapping[str, Sequence[str]]) -> str:
            shown = {"Outline": outline.split("\n"), **passages} if outline else passages
            return render_materialized(
                title=title, size=", ".join(size), ref=ref, advice=advice, passages=shown, stored=stored
            )

        for step in range(_STEPS):
            scale = _SHRINK**step
            bounds = {"lines": max(1, int(_PASSAGE_LINES * scale)), "size_bytes": int(_PASSAGE_BYTES * scale)}
            preview = render(snippets.passages(**bounds))
            if counter.count(preview) <= PREVIEW_TOKENS:
                return preview
        return render({})


def named_by(reason: str) -> str:
    """The id of the item that a line or a diff names, if ``reason`` is that of one; "": it is another reason."""
    found = _REPEATS.fullmatch(reason)
    return "" if found is None else found[1]


def _is_new_text(item: ContextItem) -> bool:
    """Whether it is a result that repeats no stored lines, and has no image or document."""
    return isinstance(item.message, ToolMessage) and item.source is None and not has_media(item.message.content)
