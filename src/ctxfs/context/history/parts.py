"""What a history is shown as, and what is given back: parts in, edits out. Pure.

Nothing is ever converted back and forth: an adapter shows a view of its own messages, and applies the edits to copies
of them, so that none of their fields can be lost. Besides, it shows what the framework asks of the provider's prompt
cache (``HostCache``).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, get_args

from ctxfs.errors import ContextOverflow, TranscriptError
from ctxfs.messages.messages import Block, Content, check_content, to_plain
from ctxfs.messages.models.prices import TTL_SECONDS, CacheTtl
from ctxfs.text.jsontext.codec import check_json

_LAST: Final = 3
"""How many messages at the end of a request may have breakpoints that the program moves with each request."""


class HostCache(NamedTuple):
    """``at_end``: the framework's breakpoints are at the end of its requests. ``ttl``: how long they keep a prefix.

    None: not known.
    """

    at_end: bool = False
    ttl: CacheTtl | None = None

    def then(self, later: "HostCache") -> "HostCache":
        """What is known once ``later`` has also been seen."""
        return HostCache(self.at_end or later.at_end, later.ttl or self.ttl)


NO_HOST_CACHE = HostCache()
"""Nothing is known about breakpoints."""


def asked_by(*settings: Any) -> HostCache:
    """What the first of these settings that is set (to True, a time or a mark) asks for at the end of requests."""
    given = next((setting for setting in settings if setting), None)
    if given is None:
        return NO_HOST_CACHE
    ttl = given.get("ttl") if isinstance(given, Mapping) else getattr(given, "ttl", given)
    for known in TTL_SECONDS:
        if known == ttl:
            return HostCache(at_end=True, ttl=known)
    return HostCache(at_end=True)


def mark_of(messages: Sequence[Any], key: str = "cache_control") -> Any:
    """The mark ``key`` that a program set in one of its last messages, or in a block of its content; None: none."""
    for given in reversed(messages[-_LAST:]):
        message = to_plain(given)
        content = message.get("content")
        blocks: Iterable[Any] = () if content is None or isinstance(content, str) else content
        # Of a message, the last block with a mark, else its own.
        for part in reversed([message, *map(to_plain, blocks)]):
            if isinstance(part, Mapping) and part.get(key):
                return part[key]
    return None


Kind = Literal["user", "reply", "call", "result"]
"""The kinds of parts: input of the model, its replies, its tool calls, and their results."""

Replacement = str | tuple[Block, ...] | Mapping[str, Any]
"""What replaces a part: a text or content blocks; for a call, its arguments."""

_KINDS = frozenset(get_args(Kind))


class Part(NamedTuple):
    """One part of a history.

    ``kind``: "user" (input of the model, whoever wrote it), "reply" (its text), "call" (of a tool) or "result" (of
    such a call). ``content``: a text, or content blocks in the shape of the Messages API; for a call, its arguments.
    ``place``: the adapter's own key, unique in one history; edits refer to it. ``id``: the id of the call, for a call
    and its result; "" if the framework has none. ``tool``: the name of the tool, for a call and its result.
    ``stays``: it is counted, and never replaced, such as another library's placeholder.
    """

    kind: Kind
    content: str | Sequence[Block] | Mapping[str, Any]
    place: Hashable
    id: str = ""
    tool: str = ""
    stays: bool = False

    def with_content(self, content: Any) -> "Part":
        """The part with other content; ``_replace`` takes three times as long."""
        return Part(self.kind, content, *self[2:])


class Edits(Mapping[Hashable, Replacement]):
    """What to replace in a history, by place; parts that are not in it stay as they are.

    ``tokens``: the size of the history with these edits, and of all that is sent besides it, by the counter.
    ``freed_tokens``: how many more it would be without them. ``breakpoints``: the places after which a prompt-cache
    breakpoint is worth its price, in order. ``window_tokens``: the largest prompt; None means no limit. ``overflow``:
    the error of a history that is certain not to fit its window although nothing more can be replaced; None if it fits,
    or may fit.
    """

    __slots__ = ("_content", "breakpoints", "freed_tokens", "overflow", "tokens", "window_tokens")

    def __init__(
        self,
        content: Mapping[Hashable, Replacement],
        *,
        tokens: int = 0,
        freed_tokens: int = 0,
        breakpoints: Sequence[Hashable] = (),
        window_tokens: int | None = None,
        overflow: ContextOverflow | None = None,
    ) -> None:
        self._content = dict(content)
        self.tokens = tokens
        self.freed_tokens = freed_tokens
        self.breakpoints = tuple(breakpoints)
        self.window_tokens = window_tokens
        self.overflow = overflow

    def __getitem__(self, place: Hashable) -> Replacement:
        return self._content[place]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def __repr__(self) -> str:
        return f"Edits({self._content!r}, tokens={self.tokens})"


def checked_parts(parts: object) -> list[Part]:
    """The parts of a history, once each is known to be a ``Part`` with a place of its own.

    Their contents are not looked at: only those of new parts are, when these are taken in.

    Raises:
        TranscriptError: something is not a part, a place is not a key or stands twice, or an id or a tool is no text.

    """
    if isinstance(parts, str) or not isinstance(parts, Sequence):
        raise TranscriptError([f"the history is of type {type(parts).__name__}: use a list of Part(...)"])
    for kind in set(map(type, parts)):
        if not issubclass(kind, Part):
            raise TranscriptError([f"a part is of type {kind.__name__}: use Part(...)"])
    check_names(parts, "a part")
    places = [part.place for part in parts]
    try:
        twice = len(set(places)) < len(places)
    except TypeError as error:
        raise TranscriptError(
            [f"a place of a part cannot be a key ({error}): use a number, a text or a tuple"]
        ) from error
    if twice:
        (place, _), *_ = Counter(places).most_common(1)
        raise TranscriptError([f"several parts have the place {place!r}: give each part a place of its own"])
    return list(parts)


def check_names(parts: Sequence[Part], what: str) -> None:
    """Raise ``TranscriptError`` if an id or a tool in ``parts`` is not text; ``what``: a part, for the error."""
    for name, field in (("id", 3), ("tool", 4)):
        for kind in set(map(type, map(itemgetter(field), parts))):
            if not issubclass(kind, str):
                raise TranscriptError([f"the {name} of {what} is of type {kind.__name__}: it must be text"])


def plain_content(part: Part) -> str | tuple[Block, ...] | dict[str, Any]:
    """The content of ``part``, checked: a text, blocks, or arguments, without the marks of a prompt cache.

    These marks move from call to call, and say nothing about the content.

    Raises:
        TranscriptError: the part is not one: another kind, or content that is not of its kind.

    """
    if part.kind not in _KINDS:
        raise TranscriptError([f"a part of kind {part.kind!r}: use one of {', '.join(sorted(_KINDS))}"])
    content = part.content
    try:
        if part.kind == "call":
            return _arguments(content)
        blocks = check_content(content)
        return blocks if isinstance(blocks, str) else tuple([_without_mark(block) for block in blocks])
    except ValueError as error:
        raise TranscriptError([f"a part of kind {part.kind!r} at {part.place!r}: {error}"]) from error


def result_content(content: object) -> Content:
    """The content of a result, checked as ``plain_content`` does."""
    given: Any = content
    checked = plain_content(Part("result", given, "the result"))
    assert isinstance(checked, str | tuple)
    return checked


def _arguments(content: object) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise ValueError(f"the arguments of a call are a mapping, not {type(content).__name__}")  # noqa: TRY004 - data
    arguments = dict(content)
    check_json(arguments, "arguments")
    return arguments


def _without_mark(block: Block) -> Block:
    if "cache_control" not in block:
        return block
    return {key: value for key, value in block.items() if key != "cache_control"}
