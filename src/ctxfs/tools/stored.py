"""What this session stored, as its tools see it: found by the session's index alone, shown in bounded pages.

Each tool that reads it tells its model what cannot be read, and why.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import islice
from types import CodeType
from typing import Annotated, ParamSpec, TypeVar

from pydantic import Field

from ctxfs.errors import CorruptContent, NotStored, SessionError, StorageError, ToolError, UnknownItem
from ctxfs.errors.checks import require_int
from ctxfs.messages.items import ContentRange
from ctxfs.messages.messages import Block
from ctxfs.messages.names import path_of
from ctxfs.messages.tokens import TokenCounter, count_block, default_counter, require_counter
from ctxfs.session.content.reader import ContentReader
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.threads import run_in_steps
from ctxfs.tools.base import READING_DESCRIPTIONS, ToolResult, told
from ctxfs.tools.decorator import Arguments, FunctionTool, calling, read_arguments
from ctxfs.tools.paging import MAX_POSITION, Line, LineCutter, LineEnds, Page, render_page

T = TypeVar("T")
E = TypeVar("E")

CHARS_PER_TOKEN = 8
"""The characters that are fetched for each token of a page: more than text has, so that tokens bound the page."""
MAX_MEDIA = 20
"""The most images and documents that come with a page. The first one always does, the others while tokens are left."""
MAX_MEDIUM_TOKENS = 100_000
"""An image or a document of more tokens is not shown."""
MAX_LIMIT_LINES = 2_000
"""No page has more lines."""
DEFAULT_MAX_TOKENS = 4_000
"""What bounds a result unless it is set."""
MIN_PAGE_TOKENS = 200
"""No page is bounded to less."""
_NOTE_TOKENS = 100  # for the note about contents that are not shown
_NOTED = 5
_AT_ONCE_CHARS = 2_048  # if each is a line, some milliseconds


@dataclass(frozen=True, slots=True)
class Scope:
    """The session that the tools see, and the bound on each result.

    Args:
        fs: the session.
        max_tokens: the bound; less than ``MIN_PAGE_TOKENS`` is taken for that.
        counter: counts tokens; None: the default counter.
        offset: the argument in which the tools take a page's first line: results that go on name it.
    """

    fs: ContextFileSystem
    max_tokens: int = DEFAULT_MAX_TOKENS
    counter: TokenCounter | None = None
    offset: str = "offset"

    def __post_init__(self) -> None:
        require_int("max_tokens", self.max_tokens, at_least=0)
        require_counter(self.counter)
        object.__setattr__(self, "max_tokens", max(MIN_PAGE_TOKENS, self.max_tokens))

    @property
    def max_chars(self) -> int:
        """How many characters are fetched for a result, at most."""
        return self.max_tokens * CHARS_PER_TOKEN

    def known(self, ref: str) -> str:
        """The item that ``ref`` means. Raises UnknownItem, for another session's too."""
        item_id = self.fs.find(ref)
        if item_id is None:
            raise UnknownItem(ref)
        return item_id

    def source(self, stored: Stored, first: int, last: int) -> ContentRange:
        """These lines of a content, as what a result repeats."""
        path = path_of(self.fs.base, stored.name)
        return ContentRange(item_id=stored.item_id, path=path, first_line=first, last_line=last)

    def loaded_counter(self) -> TokenCounter:
        """For worker threads: the default counter may have to be loaded."""
        return self.counter or default_counter()


async def stored_lines(
    reader: ContentReader, first: int, *, limit: int, max_chars: int, char_offset: int | None = None
) -> list[Line]:
    """Lines of stored content from ``first`` on; what stands before and after them is not read."""
    cutter = LineCutter(first, limit=limit, max_chars=max_chars, char_offset=char_offset)
    async with aclosing(reader.text_from(first)) as pieces:
        async for piece in pieces:
            if await _fed(cutter.feed, piece):
                break
    return cutter.finish()


async def stored_ends(reader: ContentReader, first: int) -> list[Line]:
    """The ends of all lines of stored content from ``first`` on; what stands before these is not read."""
    ends = LineEnds(first)
    async with aclosing(reader.text_from(first)) as pieces:
        async for piece in pieces:
            await _fed(ends.feed, piece)
    return ends.finish()


async def _fed(feed: Callable[[str], T], piece: str) -> T:
    """Cut a piece into lines: in a worker thread, unless they are few whatever it holds."""
    if len(piece) <= _AT_ONCE_CHARS:
        return feed(piece)
    return await run_in_steps(partial(feed, piece))


async def read_page(
    scope: Scope, item_id: str, *, first: int = 1, limit: int = MAX_LIMIT_LINES, char_offset: int | None = None
) -> ToolResult:
    """A page of an item's stored content, with the lines that it shows as its source.

    The bound is one for its text and, beside that, one for the images and documents on its lines; one of these comes in
    any case, of at most ``MAX_MEDIUM_TOKENS``, so that each can be seen again.
    """
    reader = scope.fs.reader(item_id)
    offset = scope.offset
    max_tokens = scope.max_tokens
    limit = min(limit, max_tokens)  # each line is a token at least
    lines = await stored_lines(reader, first, limit=limit, max_chars=scope.max_chars, char_offset=char_offset)
    total = reader.stored.lines
    if not lines:
        return page_result(None, first, total, offset=offset)
    media = await reader.media(first, lines[-1].number)
    room = max_tokens - _NOTE_TOKENS if media else max_tokens
    page = noting_missing(await rendered(lines, total, room, scope.counter, offset=offset), reader.stored)
    result = page_result(page, first, total, scope.source(reader.stored, page.first_line, page.last_line))
    on_page = [(line, block) for line, block in media if line <= page.last_line]
    if not on_page:
        return result
    content = await run_in_steps(lambda: _with_media(page.text, on_page, scope))
    return replace(result, content=content)


def _with_media(text: str, media: Sequence[tuple[int, Block]], scope: Scope) -> tuple[Block, ...]:
    """A page's text, then the images and documents on its lines: as many as fit beside it, and at least one."""
    counter = scope.loaded_counter()
    shown: list[Block] = []
    notes: list[str] = []
    used = 0
    for line, block in media:
        tokens = count_block(counter, block)
        if tokens > MAX_MEDIUM_TOKENS:
            notes.append(f"line {line:,}: {tokens:,} tokens are too many to be shown")
        elif shown and (used + tokens > scope.max_tokens or len(shown) == MAX_MEDIA):
            notes.append(f"line {line:,}: {scope.offset}={line}")
        else:
            shown.append(block)
            used += tokens
    if len(notes) > _NOTED:
        notes = [*notes[:_NOTED], f"and {len(notes) - _NOTED:,} more"]
    if notes:
        text = f"{text}\n[not shown with this page: {'; '.join(notes)}]"
    return ({"type": "text", "text": text}, *shown)


async def rendered(
    lines: list[Line], total_lines: int | None, max_tokens: int, counter: TokenCounter | None, *, offset: str = "offset"
) -> Page:
    """The page, made in a worker thread: counting tokens takes a while."""

    def page() -> Page:
        counts = counter or default_counter()
        return render_page(lines, total_lines=total_lines, max_tokens=max_tokens, counter=counts, offset=offset)

    return await run_in_steps(page)


def noting_missing(page: Page, stored: Stored) -> Page:
    """The page; if it reaches the end of a content that is not all of a tool's output, it says so."""
    if page.next_offset is not None or not stored.missing:
        return page
    return replace(page, text=f"{page.text}\n[the output goes on, but {stored.missing}]")


def page_result(
    page: Page | None,
    first: int,
    total_lines: int | None,
    source: ContentRange | None = None,
    *,
    offset: str = "offset",
) -> ToolResult:
    """The page as a result; no page means that line ``first``, the argument ``offset``, does not exist.

    Raises:
        ToolError: ``first`` is past the end.
    """
    if page is not None:
        return ToolResult(page.text, source=source)
    if not total_lines:
        return ToolResult("[it is empty]")
    raise ToolError(f"{offset}={first} is past the end: there are {total_lines:,} lines")


async def list_page(
    entries: Sequence[E], text: Callable[[E], str], *, offset: int, max_tokens: int, counter: TokenCounter | None
) -> ToolResult:
    """A page of a list, from its entry ``offset`` on (from 1), each as the one line of its ``text``.

    Raises:
        ToolError: ``offset`` is past the end.
    """

    def page() -> ToolResult:
        cutter = LineCutter(offset, limit=MAX_LIMIT_LINES, max_chars=max_tokens * CHARS_PER_TOKEN)
        for entry in islice(entries, offset - 1, None):
            if cutter.feed(f"{text(entry)}\n"):
                break
        lines = cutter.finish()
        total = len(entries)
        if not lines:
            return page_result(None, offset, total)
        counts = counter or default_counter()
        shown = render_page(lines, total_lines=total, max_tokens=max_tokens, counter=counts)
        return page_result(shown, offset, total)

    return await run_in_steps(page)


P = ParamSpec("P")

CharOffset = Annotated[
    int | None, Field(ge=0, le=MAX_POSITION, description="Read the first line only, from this character (from 0) on")
]

_CALL_AGAIN = "Call the tool that gave it again only if it changes nothing."

_ARGUMENTS: dict[CodeType, Arguments] = {}
"""The arguments of each function that became such a tool, by its code.

Each session makes tools of its own of the same code, whose type hints never differ: to read those of a dozen tools
again would take longer than all else that opening a session does.
"""


def reading_tool(
    description: str, *, name: str, read_only: bool = True, ids_from: str = ""
) -> Callable[[Callable[P, Awaitable[ToolResult]]], FunctionTool[P, Awaitable[ToolResult]]]:
    """Make a function a tool that tells the model what cannot be read, and why, in an error result.

    ``ids_from``: the tool that shows the ids of what can be read; "" if the model has none.
    """

    def decorate(function: Callable[P, Awaitable[ToolResult]]) -> FunctionTool[P, Awaitable[ToolResult]]:
        @wraps(function)
        async def read(*args: P.args, **kwargs: P.kwargs) -> ToolResult:
            try:
                return await function(*args, **kwargs)
            except (CorruptContent, NotStored) as error:
                return ToolResult(f"The stored content cannot be read: {told(error)}. {_CALL_AGAIN}", is_error=True)
            except UnknownItem as error:
                more = f", or an id that {ids_from} shows" if ids_from else ""
                return ToolResult(f"{told(error)}{more}", is_error=True)
            except (ToolError, StorageError, SessionError) as error:
                return ToolResult(told(error), is_error=True)

        arguments = _ARGUMENTS.get(function.__code__)
        if arguments is None:
            arguments = read_arguments(function, name)
            _ARGUMENTS[function.__code__] = arguments
        made: FunctionTool[P, Awaitable[ToolResult]] = FunctionTool(
            name=name,
            description=description,
            input_schema=deepcopy(arguments.schema),  # its user may change it
            read_only=read_only,
            function=read,
            handler=calling(read, arguments, name),
        )
        READING_DESCRIPTIONS.add(made.description)
        return made

    return decorate
