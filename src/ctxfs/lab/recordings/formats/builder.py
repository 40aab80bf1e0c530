"""What the readers of all formats share: results are paired with calls, and bills with replies."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ctxfs.errors import ReplayFormatError
from ctxfs.eviction.placeholder.identifiers import strings_of
from ctxfs.lab.recordings.recording import Block, Kind, Message, ModelCall, Recording, Role
from ctxfs.messages.base import Usage
from ctxfs.messages.tokens import IMAGE_MAX_TOKENS, CharsCounter, count_block, json_counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The content of a file.

    ``head`` is the JSON object that the file is; empty for a list and for JSON lines. ``rows`` are the objects of the
    list, the lines, or what the object has as its ``messages``; an object without them is the only row. ``name`` and
    ``where`` are the recording's name and what errors call the file.
    """

    name: str
    where: str
    head: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


def document(text: str, *, name: str, where: str, expected: str) -> Document:
    """Read JSON or JSON lines.

    Raises:
        ReplayFormatError: it is neither, or holds something else than objects; the message ends with ``expected``.
    """
    value = _json(text, where, expected)
    head = value if isinstance(value, Mapping) else {}
    rows = head.get("messages", [head]) if head else value
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise ReplayFormatError(f"{where}: no list of messages; expected {expected}")
    return Document(name=name, where=where, head=head, rows=rows)


def _json(text: str, where: str, expected: str) -> Any:
    """The JSON value, or the list of the values of JSON lines."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise ReplayFormatError(f"{where}: empty; expected {expected}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        failure: Exception = error
    found = []
    for number, line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            if found:
                raise ReplayFormatError(
                    f"{where}: line {number} of its JSON lines is cut or broken ({error})"
                ) from error
            raise ReplayFormatError(f"{where}: neither JSON nor JSON lines ({failure}); expected {expected}") from error
    return found


_MEDIA = ("image", "document", "input_image", "image_url", "input_file", "file", "audio", "input_audio")
_MILLISECONDS_FROM = 1e11
"""Times above this are in milliseconds: in seconds it would be the year 5138."""


@dataclass(slots=True)
class _Draft:
    """A message that may still grow."""

    role: Role
    group: object
    at: float | None
    is_fresh: bool
    cleared: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list)
    call: ModelCall | None = None

    @property
    def is_empty(self) -> bool:
        return all(b.is_empty for b in self.blocks)

    @property
    def is_asked(self) -> bool:
        """Whether a person said it: results of tools are no question."""
        return self.role is Role.USER and all(b.kind is not Kind.TOOL_RESULT for b in self.blocks)


class Builder:
    """Collects the messages of one recording."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._calls: dict[str, Block] = {}
        self._asides: list[ModelCall] = []
        self._is_fresh = False
        self._cleared: list[str] = []

    def __len__(self) -> int:
        """How many messages there are so far, empty ones too."""
        return len(self._drafts)

    def add(
        self,
        role: Role,
        blocks: Iterable[Block],
        *,
        group: object = None,
        at: float | None = None,
        call: ModelCall | None = None,
    ) -> None:
        """Add blocks. Those of one role and one ``group`` (not None) that follow each other are one message.

        ``at`` and ``call`` are the message's: the last that are given count.
        """
        found = list(blocks)
        last = self._drafts[-1] if self._drafts else None
        if last is None or group is None or (last.role, last.group) != (role, group) or self._is_fresh:
            last = _Draft(role, group, at, self._is_fresh, tuple(self._cleared))
            self._drafts.append(last)
            self._is_fresh, self._cleared = False, []
        last.blocks += found
        last.at = at if at is not None else last.at
        last.call = call if call is not None else last.call

    def fresh(self) -> None:
        """Begin the next message with an empty context."""
        self._is_fresh = bool(self._drafts)

    def clear(self, call_ids: Iterable[Any]) -> None:
        """Before the next message, the agent removed the results of these calls from its context."""
        self._cleared += [string(call_id) for call_id in call_ids]

    def bill(self, call: ModelCall) -> None:
        """Give the last reply its bill; a reply that has one was billed before: this is another call."""
        last = next((d for d in reversed(self._drafts) if d.role is Role.ASSISTANT), None)
        if last is None or last.call is not None:
            self.aside(call)
        else:
            last.call = call

    def aside(self, call: ModelCall | None) -> None:
        """Take in a call that was billed, and stands in no thread."""
        if call is not None:
            self._asides.append(call)

    def rewind(self, questions: int) -> None:
        """Take back the last ``questions`` questions, and everything after the first of these."""
        for _ in range(questions):
            while self._drafts:
                last = self._drafts.pop()
                self.aside(last.call)
                if last.is_asked:
                    break

    def call(self, call_id: Any, tool: Any, given: Any) -> Block:
        """A call of a tool."""
        call_id, tool = string(call_id), string(tool)
        values = given if isinstance(given, Mapping) else {"input": given}
        counted = json_counted(given)
        block = Block(
            kind=Kind.TOOL_INPUT,
            text="\n".join(strings_of(values)),
            counted=counted,
            tool=tool,
            call_id=call_id,
            arguments=values,
        )
        self._calls[call_id] = block
        return block

    def result(self, call_id: Any, content: Any) -> Block:
        """The result of an earlier call: text, or a list of blocks."""
        call = self._calls.get(string(call_id))
        return Block(
            kind=Kind.TOOL_RESULT,
            text=plain(content),
            media_tokens=media_tokens(content),
            tool=call.tool if call else "",
            call_id=call_id,
            arguments=call.arguments if call else {},
        )

    def finish(self, *, name: str, model: str = "", project: str = "") -> Recording:
        """Everything that was collected; empty messages are left out, and what was billed for them is kept."""
        messages: list[Message] = []
        is_fresh = False
        cleared: tuple[str, ...] = ()
        for draft in self._drafts:
            is_fresh, cleared = is_fresh or draft.is_fresh, cleared + draft.cleared
            if draft.is_empty:
                self.aside(draft.call)
                continue
            kept = tuple(b for b in draft.blocks if not b.is_empty)
            is_fresh = is_fresh and bool(messages)
            messages.append(Message(draft.role, kept, draft.at, draft.call, is_fresh, cleared))
            is_fresh, cleared = False, ()
        return Recording(
            name=name,
            messages=tuple(messages),
            declared_model=model,
            project=project,
            asides=tuple(self._asides),
        )


def text(value: Any, kind: Kind = Kind.TEXT) -> Block:
    """A block of text; anything else is refused."""
    return Block(kind=kind, text=string(value))


def model_call(usage: Any, *, reply_id: Any = "", model: Any = "", at: Any = None, usd: Any = None) -> ModelCall:
    """One call with its usage, in the shape of any provider; None: it was not recorded."""
    creation = usage.get("cache_creation") if isinstance(usage, Mapping) else None
    hour_tokens = creation.get("ephemeral_1h_input_tokens") if isinstance(creation, Mapping) else 0
    return ModelCall(
        id=string(reply_id or ""),
        model=string(model or ""),
        at=seconds(at),
        usage=Usage.of(usage) if usage else None,
        hour_tokens=int(hour_tokens or 0),
        usd=float(usd) if isinstance(usd, int | float) else None,
    )


def string(value: Any) -> str:
    """``value``, which must be text.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} where text is expected")
    return value


def plain(content: Any) -> str:
    """The text of a string or of a list of blocks; other blocks by their JSON, without images and documents."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(
            part if isinstance(part, str) else str(part["text"]) if "text" in part else json.dumps(part)
            for part in content
            if not _is_media(part)
        )
    return json.dumps(content, ensure_ascii=False)


def media(content: Any) -> Block:
    """A block that counts the images and documents in a list of blocks; it is empty if there are none."""
    return Block(kind=Kind.TEXT, text="", media_tokens=media_tokens(content))


def media_tokens(content: Any) -> int:
    """What the images and documents in a list of blocks take."""
    parts = [part for part in content if _is_media(part)] if isinstance(content, list) else ()
    return sum(count_block(CharsCounter(), part) if "source" in part else IMAGE_MAX_TOKENS for part in parts)


def _is_media(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _MEDIA


def arguments(given: Any) -> Any:
    """A call's arguments: mostly JSON in a string, else whatever the model wrote."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given


def seconds(value: Any) -> float | None:
    """A time as seconds since 1970: from ISO 8601, seconds or milliseconds; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value / 1_000 if value > _MILLISECONDS_FROM else float(value)
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
