"""Many items in one text: readable in pages, and exact.

A message is a header line, then its content, then a newline. The header says how long the content is, so nothing in a
content can be taken for a header::

    === msg_004 assistant_message, json, 132 characters
    [{"type":"text","text":"Let me look."},{"type":"tool_use","id":"t1","name":"Read","input":{}}]
    === t1 tool_result of Read, text, 20 characters
    line one
    line two

An item whose content was damaged is marked ("tool_result of Read (damaged)"); the archive has the text that replaced
it. Pure.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from ctxfs.errors import CorruptContent
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import Content
from ctxfs.messages.names import safe_name
from ctxfs.session.records import Record, Removed
from ctxfs.session.redaction import erased
from ctxfs.session.state import SessionState
from ctxfs.text.jsontext import codec as json_codec

_HEADER = re.compile(r"=== (\S+) ([^\n]*), (text|json), (\d+) characters\n")
_DAMAGED = " (damaged)"


def write_archive(items: Iterable[ContextItem]) -> str:
    """The archive of ``items``, in order, each with the form in which the model last saw it."""
    return "".join(_entry(item.id, _kind_of(item), item.message.content) for item in items)


def read_archive(archive: str) -> dict[str, Content]:
    """The contents of an archive, by item id.

    Raises:
        CorruptContent: it is not an archive that was written here.

    """
    return {message.item_id: message.content for message in _messages(archive)}


def without_items(archive: str, item_ids: Collection[str]) -> str:
    """The archive with what stays of these items once they are erased; all else is in it as it was.

    Raises what ``read_archive`` raises.
    """
    pieces: list[str] = []
    for message in _messages(archive):
        if message.item_id in item_ids:
            pieces.append(_entry(message.item_id, message.kind, erased(message.content)))
        else:
            pieces.append(message.entry)
    return "".join(pieces)


@dataclass(frozen=True, slots=True)
class _Archived:
    """A message of an archive.

    ``kind``: the type of its item, its tool, and whether it was damaged. ``content``: as the model last saw it.
    ``entry``: all that the archive has of it, from the header on.
    """

    item_id: str
    kind: str
    content: Content
    entry: str


def _messages(archive: str) -> Iterator[_Archived]:
    position = 0
    while position < len(archive):
        header = _HEADER.match(archive, position)
        if header is None:
            raise CorruptContent("the archive", f"no header at character {position}")
        item_id, kind, form, chars = header.groups()
        end = header.end() + int(chars)
        text = archive[header.end() : end]
        content: Content = text
        if form == "json":
            content = tuple(json_codec.loads(text))
        yield _Archived(item_id, kind, content, archive[position : end + 1])
        position = end + 1


def archived_items(archive: str, archive_id: str, records: Iterable[Record]) -> tuple[ContextItem, ...]:
    """The items of an archive, in order, each as it was when it left; the journal has what the headers lack.

    Items whose records are damaged are left out.

    Raises:
        CorruptContent: it is not an archive that was written here.

    """
    archived = {message.item_id: message for message in _messages(archive)}
    state = SessionState()
    for record in records:
        if isinstance(record, Removed) and record.archive == archive_id:
            items: list[ContextItem] = []
            for item_id in record.item_ids:
                if item_id in state.items:
                    message = archived[item_id]
                    damaged = "it was when the item was archived" if message.kind.endswith(_DAMAGED) else None
                    items.append(replace(state.items[item_id].with_content(message.content), damaged=damaged))
            return tuple(items)
        state.apply(record)
    return ()


def _kind_of(item: ContextItem) -> str:
    kind: str = item.item_type.value
    if item.tool_name:
        kind += f" of {safe_name(item.tool_name)}"
    if item.damaged is not None:
        kind += _DAMAGED
    return kind


def _entry(item_id: str, kind: str, content: Content) -> str:
    if isinstance(content, str):
        return f"=== {item_id} {kind}, text, {len(content)} characters\n{content}\n"
    text = json_codec.dumps_text(content)
    return f"=== {item_id} {kind}, json, {len(text)} characters\n{text}\n"
