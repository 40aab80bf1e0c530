"""The results that a context has had, to find one that equals a new result, or is an older version of it. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ctxfs.eviction.again import Earlier, may_be_told, told_again
from ctxfs.eviction.eager import EagerOffload, EagerPolicy
from ctxfs.eviction.placeholder.attach import with_placeholder
from ctxfs.eviction.placeholder.text import READ_TOOL
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import AssistantMessage, Content, Message, ToolMessage
from ctxfs.messages.readable import readable_text
from ctxfs.messages.tokens import TokenCounter
from ctxfs.session.content.blocks import digest, root_digest
from ctxfs.session.content.encoding import encode_blocks
from ctxfs.session.content.stored import Stored
from ctxfs.session.fingerprint import sha256_of


class SeenResults:
    """The results of a context; ``items``: its items by id, a view that follows."""

    def __init__(self, items: Mapping[str, ContextItem]) -> None:
        self._items = items
        self._calls: dict[str, tuple[str, str]] = {}
        self._by_content: dict[str, str] = {}
        self._by_call: dict[tuple[str, str], str] = {}
        self._stored: dict[int, list[Stored]] = {}

    def called(self, message: Message) -> None:
        """Take in the calls of a message, before their results."""
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                self._calls[call.id] = (call.name, sha256_of(call.arguments))

    def enter(self, item: ContextItem, *, is_whole: bool = True, stored: Stored | None = None) -> None:
        """Take in a result; anything else is left out.

        ``is_whole``: the model sees all of it. ``stored``: its content in a file; None: there is none.
        """
        message = item.message
        if not may_be_told(item) or not isinstance(message, ToolMessage):
            return
        if item.destroyed:
            if stored is not None:
                self._stored.setdefault(stored.size_bytes, []).append(stored)
            return
        sha256 = sha256_of(message.content)
        if not is_whole:
            self._by_content.setdefault(sha256, item.id)
            return
        self._by_content[sha256] = item.id
        if message.tool_call_id in self._calls:
            self._by_call[self._calls[message.tool_call_id]] = item.id

    def before(self, item: ContextItem) -> Earlier | None:
        """The result that a new one equals; else the last whole one of the same call; None: there is neither."""
        message = item.message
        assert isinstance(message, ToolMessage)
        same = self._by_content.get(sha256_of(message.content)) or self._same_stored(message.content)
        if same in self._items:
            return Earlier(same, "", is_same=True)
        call = self._calls.get(message.tool_call_id)
        older = None if call is None else self._items.get(self._by_call.get(call, ""))
        if older is None or older.destroyed:
            return None
        return Earlier(older.id, readable_text(older.message.content), is_same=False)

    def _same_stored(self, content: Content) -> str:
        """The item whose stored content has the checksum of ``content``; "": there is none."""
        size = len(content.encode("utf-8", "surrogatepass")) if isinstance(content, str) else 0
        for stored in self._stored.get(size, ()):
            blocks = encode_blocks(content, stored.encoding, raw=stored.raw, compression=stored.compression)
            if root_digest(digest(data) for data, _ in blocks) == stored.digest:
                return stored.item_id
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TellRepeats:
    """The eager policy behind ``tell_repeats``; ``otherwise`` decides about what is new.

    ``tools``: names of those tools of the request that open what was stored.
    """

    seen: SeenResults
    tools: Collection[str]
    otherwise: EagerPolicy | None

    def decide(self, item: ContextItem, *, path_of: Callable[[str], str], counter: TokenCounter) -> EagerOffload | None:
        """Decide whether the item is told by an earlier one, or evicted otherwise; None: it stays."""
        earlier = self.seen.before(item) if may_be_told(item) else None
        if earlier is not None:
            path = path_of(item.name)
            offload = told_again(item, earlier, path=path, tools=self.tools, counter=counter)
            if offload is not None:
                item = with_placeholder(item, path=path, counter=counter, reader=READ_TOOL)
                chars = len(readable_text(item.message.content))
                return EagerOffload(item=item, chars=chars, offload=offload)
        if self.otherwise is None:
            return None
        return self.otherwise.decide(item, path_of=path_of, counter=counter)
