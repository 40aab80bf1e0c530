"""Many items in one text: readable in pages, and exact. Pure.

A message is a header line, then its content, then a newline. The header says how long the content is, so nothing in a
content can be taken for a header::

    === msg_004 assistant_message, json, 132 characters
    [{"type":"text","text":"Let me look."},{"type":"tool_use","id":"t1","name":"Read","input":{}}]
    === t1 tool_result of Read, text, 20 characters
    line one
    line two
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from ctxfs import json_codec
from ctxfs.context.items import ContextItem
from ctxfs.context.journal import SessionState
from ctxfs.context.layout import safe_name
from ctxfs.context.records import Record, Removed, with_content
from ctxfs.errors import CorruptContent
from ctxfs.llm.messages import Content

__all__ = ["archived_items", "read_archive", "write_archive"]

_HEADER = re.compile(r"=== (\S+) [^\n]*, (text|json), (\d+) characters\n")


def write_archive(items: Iterable[ContextItem]) -> str:
    """The archive of ``items``, in order, each with what the model saw of it last."""
    return "".join(_entry(item) for item in items)


def read_archive(archive: str) -> dict[str, Content]:
    """The contents of an archive, by item id.

    Raises:
        CorruptContent: it is not an archive that was written here.

    """
    contents: dict[str, Content] = {}
    position = 0
    while position < len(archive):
        header = _HEADER.match(archive, position)
        if header is None:
            raise CorruptContent("the archive", f"no header at character {position}")
        end = header.end() + int(header[3])
        text = archive[header.end() : end]
        contents[header[1]] = text if header[2] == "text" else tuple(json_codec.loads(text))
        position = end + 1
    return contents


def archived_items(archive: str, archive_id: str, records: Iterable[Record]) -> tuple[ContextItem, ...]:
    """The items of an archive, in order, each as it was when it left: what the archive's header lacks, a journal has.

    One whose records are damaged is left out.

    Raises:
        CorruptContent: it is not an archive that was written here.

    """
    contents = read_archive(archive)
    state = SessionState()
    for record in records:
        if isinstance(record, Removed) and record.archive == archive_id:
            items = (state.items[item_id] for item_id in record.item_ids if item_id in state.items)
            return tuple(replace(i, message=with_content(i.message, contents[i.id])) for i in items)
        state.apply(record)
    return ()


def _entry(item: ContextItem) -> str:
    content = item.message.content
    what = f"{item.item_type} of {safe_name(item.tool_name)}" if item.tool_name else item.item_type
    form, text = ("text", content) if isinstance(content, str) else ("json", json_codec.dumps_text(content))
    return f"=== {item.id} {what}, {form}, {len(text)} characters\n{text}\n"
