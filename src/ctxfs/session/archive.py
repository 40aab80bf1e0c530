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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ctxfs.errors import CorruptContent
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import Content
from ctxfs.messages.names import safe_name
from ctxfs.session.records import Record, Removed
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
    return {item_id: content for item_id, _, content in _entries(archive)}


def rewritten_archive(archive: str, change: Callable[[str, Content], Content]) -> str:
    """The archive with each content changed by ``change``, by item id. Raises what ``read_archive`` raises."""
    entries = ((header, content, change(header[1], content)) for header, content in _messages(archive))
    return "".join(
        header.string[header.start() : header.end() + int(header[4]) + 1]
        if new == content
        else _message(f"{header[1]} {header[2]}", new)
        for header, content, new in entries
    )


def _entries(archive: str) -> Iterator[tuple[str, bool, Content]]:
    """Each item's id, whether its content was damaged, and the form in which the model last saw it."""
    return ((header[1], header[2].endswith(_DAMAGED), content) for header, content in _messages(archive))


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
    contents = {item_id: (damaged, content) for item_id, damaged, content in _entries(archive)}
    state = SessionState()
    for record in records:
        if isinstance(record, Removed) and record.archive == archive_id:
            items = (state.items[item_id] for item_id in record.item_ids if item_id in state.items)
            return tuple(_as_it_left(item, *contents[item.id]) for item in items)
        state.apply(record)
    return ()


def _as_it_left(item: ContextItem, damaged: bool, content: Content) -> ContextItem:
    detail = "it was when the item was archived" if damaged else None
    return replace(item.with_content(content), damaged=detail)


def _entry(item: ContextItem) -> str:
    content = item.message.content
    what = f"{item.item_type} of {safe_name(item.tool_name)}" if item.tool_name else str(item.item_type)
    what += _DAMAGED if item.damaged is not None else ""
    return _message(f"{item.id} {what}", content)


def _message(what: str, content: Content) -> str:
    form, text = ("text", content) if isinstance(content, str) else ("json", json_codec.dumps_text(content))
    return f"=== {what}, {form}, {len(text)} characters\n{text}\n"
