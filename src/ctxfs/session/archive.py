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
from dataclasses import replace

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
    return "".join(_entry(item) for item in items)


def read_archive(archive: str) -> dict[str, Content]:
    """The contents of an archive, by item id.

    Raises:
        CorruptContent: it is not an archive that was written here.

    """
    return {header[1]: content for header, content in _messages(archive)}


def without_items(archive: str, item_ids: Collection[str]) -> str:
    """The archive with what stays of these items once they are erased; all else is in it as it was.

    Raises what ``read_archive`` raises.
    """
    pieces: list[str] = []
    for header, content in _messages(archive):
        left = erased(content) if header[1] in item_ids else content
        if left == content:
            pieces.append(archive[header.start() : header.end() + int(header[4]) + 1])
        else:
            pieces.append(_message(f"{header[1]} {header[2]}", left))
    return "".join(pieces)


def _messages(archive: str) -> Iterator[tuple[re.Match[str], Content]]:
    """Each message's header, and the form in which the model last saw it."""
    position = 0
    while position < len(archive):
        header = _HEADER.match(archive, position)
        if header is None:
            raise CorruptContent("the archive", f"no header at character {position}")
        end = header.end() + int(header[4])
        text = archive[header.end() : end]
        content: Content = text if header[3] == "text" else tuple(json_codec.loads(text))
        yield header, content
        position = end + 1


def archived_items(archive: str, archive_id: str, records: Iterable[Record]) -> tuple[ContextItem, ...]:
    """The items of an archive, in order, each as it was when it left; the journal has what the headers lack.

    Items whose records are damaged are left out.

    Raises:
        CorruptContent: it is not an archive that was written here.

    """
    left: dict[str, tuple[str | None, Content]] = {}
    for header, content in _messages(archive):
        damaged = "it was when the item was archived" if header[2].endswith(_DAMAGED) else None
        left[header[1]] = damaged, content
    state = SessionState()
    for record in records:
        if isinstance(record, Removed) and record.archive == archive_id:
            items: list[ContextItem] = []
            for item_id in record.item_ids:
                if item_id in state.items:
                    damaged, content = left[item_id]
                    items.append(replace(state.items[item_id].with_content(content), damaged=damaged))
            return tuple(items)
        state.apply(record)
    return ()


def _entry(item: ContextItem) -> str:
    what = f"{item.id} {item.item_type}"
    if item.tool_name:
        what += f" of {safe_name(item.tool_name)}"
    if item.damaged is not None:
        what += _DAMAGED
    return _message(what, item.message.content)


def _message(what: str, content: Content) -> str:
    if isinstance(content, str):
        return f"=== {what}, text, {len(content)} characters\n{content}\n"
    text = json_codec.dumps_text(content)
    return f"=== {what}, json, {len(text)} characters\n{text}\n"
