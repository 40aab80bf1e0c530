"""pi: sessions as JSON lines, entries that form a tree by ``id`` and ``parentId``.

The last entry is where the session stands: it and its ancestors are the conversation. What was billed on branches that
were left counts as billed, and stands in no thread.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ctxfs.lab.recordings.formats.builder import Builder, Document, plain, seconds, text
from ctxfs.lab.recordings.recording import Block, Kind, ModelCall, Recording, Role
from ctxfs.messages.base import Usage

_Entry = Mapping[str, Any]


def is_pi(doc: Document) -> bool:
    """Whether the first line is a session's header, with the version of the format."""
    first = doc.rows[0]
    return first.get("type") == "session" and "version" in first and "cwd" in first


def read(doc: Document) -> Iterable[Recording]:
    """The one session of the file."""
    header, *entries = doc.rows
    branch = _branch(entries)
    session = _Session()
    for place, entry in enumerate(branch):
        session.take(entry, before=branch[:place])
    followed = {id(entry) for entry in branch}
    for entry in entries:
        if id(entry) not in followed and _message(entry).get("role") == "assistant":
            session.builder.aside(_billed(_message(entry)))
    yield session.builder.finish(name=str(header.get("id") or doc.name), project=str(header["cwd"]))


def _branch(entries: Sequence[_Entry]) -> list[_Entry]:
    """The last entry and its ancestors, oldest first. Version 1 of the format has no tree: all entries."""
    by_id = {entry["id"]: entry for entry in entries if "id" in entry}
    if not by_id:
        return list(entries)
    found = []
    entry: _Entry | None = next(reversed(by_id.values()))
    while entry is not None:
        found.append(entry)
        # Popped, so that a damaged file cannot lead in a circle.
        entry = by_id.pop(str(entry.get("parentId")), None)
    return found[::-1]


def _message(entry: _Entry) -> Mapping[str, Any]:
    return entry["message"] if entry.get("type") == "message" else {}


class _Session:
    """What is known up to an entry."""

    def __init__(self) -> None:
        self.builder = Builder()

    def take(self, entry: _Entry, *, before: Sequence[_Entry]) -> None:
        at = seconds(entry.get("timestamp"))
        match entry.get("type"):
            case "message":
                self._said(_message(entry), at)
            case "custom_message":
                self.builder.add(Role.USER, [text(plain(entry["content"]))], at=at)
            case "branch_summary":
                self.builder.add(Role.USER, [text(entry["summary"])], at=at)
            case "compaction":
                self.builder.fresh()
                kept = _kept(before, entry.get("firstKeptEntryId"))
                self.builder.add(Role.USER, [text(entry["summary"]), *kept], at=at)

    def _said(self, message: Mapping[str, Any], at: float | None) -> None:
        content = message.get("content")
        match message["role"]:
            case "user" | "custom":
                self.builder.add(Role.USER, [text(plain(content))], at=at)
            case "assistant":
                self.builder.add(Role.ASSISTANT, self._blocks(content), at=at, call=_billed(message))
            case "toolResult":
                result = self.builder.result(message["toolCallId"], content)
                self.builder.add(Role.USER, [result], group="results", at=at)
            case "bashExecution" if not message.get("excludeFromContext"):
                self.builder.add(Role.USER, [text(f"{message['command']}\n{message.get('output') or ''}")], at=at)

    def _blocks(self, content: Any) -> Iterator[Block]:
        for part in content:
            match part.get("type"):
                case "text":
                    yield text(part["text"])
                case "thinking":
                    yield text(part["thinking"], Kind.THINKING)
                case "toolCall":
                    yield self.builder.call(part["id"], part["name"], part.get("arguments") or {})


def _kept(before: Sequence[_Entry], first: Any) -> Iterator[Block]:
    """What a compaction kept of the messages before it, as text: sending them again was no call of the model."""
    is_kept = False
    for entry in before:
        is_kept = is_kept or entry.get("id") == first
        if is_kept and entry.get("type") == "message":
            yield text(plain(_message(entry).get("content")))


def _billed(message: Mapping[str, Any]) -> ModelCall:
    """A reply's bill. pi counts cached tokens beside the input, as Anthropic does."""
    usage = message.get("usage") or {}
    billed = Usage(
        input_tokens=usage.get("input") or 0,
        cache_creation_input_tokens=usage.get("cacheWrite") or 0,
        cache_read_input_tokens=usage.get("cacheRead") or 0,
        output_tokens=usage.get("output") or 0,
    )
    usd = (usage.get("cost") or {}).get("total")
    return ModelCall(
        id=str(message.get("responseId") or ""),
        model=str(message.get("model") or ""),
        at=seconds(message.get("timestamp")),
        usage=billed if billed.total_input_tokens else None,
        usd=float(usd) if usd else None,
    )
