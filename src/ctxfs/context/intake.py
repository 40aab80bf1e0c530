"""From the messages that a caller adds to entries; large ones are read outside of the event loop."""

from collections.abc import Mapping, Sequence

from ctxfs.context.entry import Entry, EntryRules, Known, build_entry
from ctxfs.context.transcript import Transcript
from ctxfs.messages.incoming import Incoming
from ctxfs.messages.messages import Message, MessageLike
from ctxfs.text.jsontext.write_stream import is_longer
from ctxfs.text.steps import run_in_steps

_INLINE_CHARS = 32_768
"""Reading less than this takes a millisecond or two at most; a hop to a worker thread takes a quarter of one."""


async def parsed(messages: Sequence[MessageLike], transcript: Transcript) -> Sequence[Message]:
    """Messages of our own from input of any kind; see ``Transcript.parse``."""
    contents = (m.get("content") if isinstance(m, Mapping) else getattr(m, "content", None) for m in messages)
    if all(isinstance(content, str) or _is_small(content) for content in contents):
        return transcript.parse(messages)
    return await run_in_steps(lambda: transcript.parse(messages))


async def entries_of(incoming: Sequence[Incoming], known: Known, rules: EntryRules) -> list[Entry]:
    """Decide how the messages would enter; until they do, nothing changes.

    This is decided again if another task has taken one of their names, as a tool does that stores its output.
    """
    while True:
        draft, entries = known if len(incoming) == 1 else known.draft(), list[Entry]()
        for one in incoming:
            entries.append(await _built(one, draft, rules))
            if draft is not known:
                draft.take(entries[-1])
        if all(known.names.is_free(item_id) for entry in entries for item_id in entry.new_ids):
            return entries


async def _built(incoming: Incoming, known: Known, rules: EntryRules) -> Entry:
    if _is_small(incoming.message.content):
        return build_entry(incoming, known, rules)
    return await run_in_steps(lambda: build_entry(incoming, known, rules))


def _is_small(content: object) -> bool:
    """Whether unchecked content can be read as it is; a model of an SDK has to be dumped first."""
    if isinstance(content, list | tuple) and not all(isinstance(block, dict) for block in content[:_INLINE_CHARS]):
        return False
    return isinstance(content, str | list | tuple) and not is_longer(content, _INLINE_CHARS)
