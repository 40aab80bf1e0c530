"""Over-size tool output goes to an artifact at the end of the call; a summary and a ``ContextRef`` take its place.

Follows "Tool Output Materialization（工具输出文件化）规格". Characters are Unicode code points, bytes those of UTF-8.
In an agent: ``AgentConfig(materialize=Materialize())``; in your own loop: ``Context(eager=Materializer())``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from ctxfs.errors import ConfigError, TranscriptError
from ctxfs.errors.checks import names_settings, require_int, require_text
from ctxfs.eviction.offload_plan import EagerOffload, Offload
from ctxfs.eviction.placeholder.attach import DIGEST_FRACTION, with_placeholder
from ctxfs.eviction.placeholder.excerpts import Snippets
from ctxfs.eviction.placeholder.text import (
    READ_TOOL,
    READING_TOOLS,
    render_advice,
    render_materialized,
    render_size,
)
from ctxfs.messages.incoming import Incoming, new_item
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import Content, ToolMessage, check_content, has_media, part_of, readable_text, text_with
from ctxfs.messages.names import artifact_name, path_of, safe_name
from ctxfs.messages.tokens import TokenCounter, load_counter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.fingerprint import Key, decided_at_source, sha256_of
from ctxfs.session.records import Decided
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.tokens import is_json

_SLICE = 262_144


def utf8_size(text: str) -> int:
    """Count the bytes of ``text`` in UTF-8, without making them all at once."""
    if text.isascii():
        return len(text)
    return sum(len(text[i : i + _SLICE].encode("utf-8", "surrogatepass")) for i in range(0, len(text), _SLICE))


SNIPPET_LINES = 40
SNIPPET_BYTES = 2 * 1024
"""Upper bounds on the head, on the tail and on the passages with errors of an output, each."""

_SCALES = (1.0, 0.5, 0.25, 0.125)


def snippet_bounds() -> Iterator[tuple[int, int]]:
    """Lines and bytes of a snippet: the upper bounds at first, then less and less."""
    for scale in _SCALES:
        yield int(SNIPPET_LINES * scale), int(SNIPPET_BYTES * scale)


_SNIPPETS = "snippets take at most a fifth of the output's tokens; give max_inline_chars or max_inline_bytes"


@names_settings({"snippet_lines": _SNIPPETS, "snippet_bytes": _SNIPPETS})
@dataclass(frozen=True, slots=True, kw_only=True)
class Materialize:
    """When output is materialized, and how much of it is shown in its place.

    max_inline_chars, max_inline_bytes: output over either limit is materialized; 0 means all that is not empty.
    servers: the server of a tool, by the tool's name; tools that are not named have none.

    Output with an image or a document stays whole, so that the model sees it; it is evicted later, like any other.

    Raises:
        ConfigError: a limit is not a whole number or is negative, or ``servers`` is not a mapping to text.
    """

    max_inline_chars: int = 4_000
    max_inline_bytes: int = 16 * 1024
    servers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        for name in ("max_inline_chars", "max_inline_bytes"):
            require_int(name, getattr(self, name), at_least=0)
        if not isinstance(self.servers, Mapping):
            raise ConfigError(f"servers is {self.servers!r}: use a mapping from tools' names to servers' names")
        for tool, server in self.servers.items():
            require_text(f"servers[{tool!r}]", server)

    def is_over(self, text: str) -> bool:
        """Whether ``text`` passes either limit."""
        limit = self.max_inline_bytes
        return len(text) > min(self.max_inline_chars, limit) or utf8_size(text) > limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRef:
    """Where the whole output is: ``id`` is what the reading tools take; ``hint`` says what it is a result of."""

    id: str
    kind: str = "artifact"
    hint: Mapping[str, str | int] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> str:
        """One line of JSON."""
        return json_codec.dumps_text({"id": self.id, "kind": self.kind, "hint": dict(self.hint)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Materialized:
    """What to send: ``content`` as it came and no ``ref``, or the text that stands for it."""

    content: Content
    ref: ContextRef | None
    saved_chars: int


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Materializer:
    """The eager policy behind ``Materialize``. Pure.

    ``tools`` names the tools that the model has, ``reader`` the one of them that opens files by their path.

    Results of retrieval tools are bounded already and stay as they are.

    Raises:
        ConfigError: a setting of another type, such as a single name as ``tools``.
    """

    settings: Materialize = field(default_factory=Materialize)
    tools: Collection[str] = ()
    reader: str = READ_TOOL

    def __post_init__(self) -> None:
        if not isinstance(self.settings, Materialize):
            raise ConfigError(f"settings is {self.settings!r}: use Materialize(...)")
        if isinstance(self.tools, str) or not isinstance(self.tools, Collection):
            raise ConfigError(f"tools is {self.tools!r}: use a collection of tool names")
        require_text("reader", self.reader)

    def decide(self, item: ContextItem, *, path_of: Callable[[str], str], counter: TokenCounter) -> EagerOffload | None:
        """Decide whether the item is evicted before it is ever sent; None: it is not."""
        found = self.referred(item, path_of=path_of, counter=counter)
        return None if found is None else found[0]

    def referred(
        self, item: ContextItem, *, path_of: Callable[[str], str], counter: TokenCounter
    ) -> tuple[EagerOffload, ContextRef] | None:
        """As ``decide``, with the reference to the stored output."""
        message = item.message
        if not isinstance(message, ToolMessage) or item.source is not None or message.tool_name in READING_TOOLS:
            return None
        if has_media(message.content):
            return None
        measured = text_with(message.content, json_codec.dumps_text)  # also the JSON of blocks that are no text
        if not self.settings.is_over(measured):
            return None
        text = readable_text(message.content)
        is_json_text = is_json(text)  # the lines that the tools show; blocks are JSON in their file in any case
        blocks = 0 if isinstance(message.content, str) else len(message.content)
        name = artifact_name(item.id, is_json=is_json_text or not isinstance(message.content, str))
        item = with_placeholder(replace(item, name=name), path=path_of(name), counter=counter, reader=self.reader)
        chars = len(measured)
        size_bytes = utf8_size(measured)
        hint = self._hint(message, chars=chars, size_bytes=size_bytes)
        summary = _Summary(
            snippets=Snippets(text),
            title=f"{_title(hint)}, call {item.id}",
            chars=chars,
            size_bytes=size_bytes,
            is_json=is_json_text,
            blocks=blocks,
            ref=ContextRef(id=item.id, hint=MappingProxyType(hint)),
            advice=render_advice(item.id, path_of(name), self.tools, reader=self.reader),
            full_bytes=item.full_bytes,
        )
        if not summary.is_smaller(summary.render({}, line_count=len(measured))):  # counting lines can wait
            return None

        replacement, tokens = summary.longest(content_tokens=item.content_tokens, counter=counter)
        limits = f"{self.settings.max_inline_chars:,} characters or {self.settings.max_inline_bytes:,} bytes"
        offload = Offload(
            item_id=item.id,
            path=path_of(name),
            placeholder=replacement,
            tokens_before=item.token_count,
            tokens_after=tokens,
            reason=f"over {limits}",
        )
        return EagerOffload(item=item, chars=len(measured), offload=offload), summary.ref

    def _hint(self, message: ToolMessage, *, chars: int, size_bytes: int) -> dict[str, str | int]:
        hint: dict[str, str | int] = {"tool": message.tool_name}
        server = self.settings.servers.get(message.tool_name)
        if server is not None:
            hint["server"] = server
        hint["call_id"] = message.tool_call_id
        hint["chars"] = chars
        hint["bytes"] = size_bytes
        return hint


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summary:
    """What is said in the place of an output."""

    snippets: Snippets
    title: str
    chars: int
    size_bytes: int
    is_json: bool
    blocks: int
    ref: ContextRef
    advice: str
    full_bytes: int
    """The size of the whole output, as in ``ContextItem``; 0: all of it is here."""

    def render(self, passages: Mapping[str, Sequence[str]], *, line_count: int) -> str:
        """With these passages of the output."""
        size = render_size(chars=self.chars, size_bytes=self.size_bytes, lines=line_count, is_json=self.is_json)
        if self.blocks:
            size += f"; content blocks: {self.blocks}"
        stored = "in full"
        if self.full_bytes:
            stored = f"in part, {part_of(self.size_bytes, self.full_bytes)}"
        return render_materialized(
            title=self.title,
            size=size,
            ref=self.ref.to_json(),
            advice=self.advice,
            passages=passages,
            stored=stored,
        )

    def is_smaller(self, text: str) -> bool:
        """Whether ``text`` has fewer characters, and fewer bytes, than the output."""
        return len(text) < self.chars and utf8_size(text) < self.size_bytes

    def longest(self, *, content_tokens: int, counter: TokenCounter) -> tuple[str, int]:
        """The longest text that is smaller than the output, with passages that take a digest's share of it; its tokens.

        Without a passage it is smaller in characters and bytes, or the output would stay.
        """
        count = self.snippets.line_count
        bare = self.render({}, line_count=count)
        bare_tokens = counter.count(bare)
        most = min(bare_tokens + content_tokens // DIGEST_FRACTION, content_tokens - 1)
        for lines, size_bytes in snippet_bounds():
            text = self.render(self.snippets.passages(lines=lines, size_bytes=size_bytes), line_count=count)
            if not self.is_smaller(text):
                continue
            tokens = counter.count(text)
            if tokens <= most:
                return text, tokens
        return bare, bare_tokens


def _title(hint: Mapping[str, str | int]) -> str:
    """The tool, after its server if it has one: on one line, whatever a model called it."""
    tool = safe_name(str(hint["tool"]))
    return f"{hint['server']}/{tool}" if "server" in hint else tool


@names_settings()
async def materialize(
    content: Content,
    *,
    fs: ContextFileSystem,
    tool_name: str,
    call_id: str,
    settings: Materialize | None = None,
    tools: Collection[str] = (),
    counter: TokenCounter | None = None,
) -> Materialized:
    """Store a tool's output in the open session ``fs`` if it is over the limits, and say what to send instead.

    On return the artifact is durable and readable by its ``ContextRef``, and the journal says what stands for it: a
    ``History`` of the session knows the replacement again, and keeps it. ``tools`` names the tools that the model can
    read with. ``settings`` and ``counter``: None means the defaults.

    Raises:
        TranscriptError: ``content`` is not content.
        ConfigError: ``tool_name`` or ``call_id`` is not a text, or a setting is of another type.
        WriteFailed: it could not be stored; send the content as it is.
        SessionClosed: the session is not open.

    """
    require_text("tool_name", tool_name)
    require_text("call_id", call_id)
    counter = counter or await load_counter()
    try:
        checked = content if isinstance(content, str) else await run_in_steps(lambda: check_content(content))
    except ValueError as error:
        raise TranscriptError([str(error)]) from error
    message = ToolMessage(call_id, tool_name, checked)
    policy = Materializer(settings=settings or Materialize(), tools=tools)

    def look() -> tuple[EagerOffload, ContextRef, Decided] | None:
        incoming = Incoming(message=message)
        item = new_item(incoming, names=fs.writer.names.draft(), counter=counter)
        found = policy.referred(item, path_of=partial(path_of, fs.base), counter=counter)
        if found is None:
            return None
        leaving, ref = found
        key = Key("result", call_id, sha256_of(checked))
        offload = leaving.offload
        decided = decided_at_source(
            key, leaving.item, offload.placeholder, offload.tokens_after, reason=offload.reason, tool=tool_name
        )
        return leaving, ref, decided

    while True:
        found = await run_in_steps(look)
        if found is None:
            return Materialized(content=content, ref=None, saved_chars=0)
        leaving, ref, decided = found
        if fs.writer.names.is_free(leaving.item.id):  # or another task took the name meanwhile
            break
    fs.writer.names.take([leaving.item.id])
    await fs.writer.decide([leaving.item], [decided])
    placeholder = leaving.offload.placeholder
    return Materialized(content=placeholder, ref=ref, saved_chars=leaving.chars - len(placeholder))
