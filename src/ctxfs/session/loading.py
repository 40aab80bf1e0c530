"""The contents of items that are in files; a text replaces a content that cannot be read."""

from collections.abc import Awaitable, Callable, Collection, Sequence

from ctxfs.errors import ContentGone, CtxfsError
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import Content
from ctxfs.session.damaged import DamagedContent, detail_of, with_notices


async def with_contents(
    items: Sequence[ContextItem], in_files: Collection[str], load: Callable[[str], Awaitable[Content]]
) -> tuple[tuple[ContextItem, ...], tuple[DamagedContent, ...]]:
    """``items``, those of ``in_files`` (ids) with the content that ``load`` returns; and the damaged contents.

    A content that was removed on purpose is not damaged, although a text replaces it too.
    """
    contents: dict[str, Content] = {}
    unreadable: dict[str, DamagedContent] = {}
    damaged: list[DamagedContent] = []
    for item in items:
        if item.id not in in_files:
            continue
        try:
            contents[item.id] = await load(item.id)
        except CtxfsError as error:
            detail = detail_of(error)
            if detail is None:
                raise
            removed = isinstance(error, ContentGone)
            found = DamagedContent(item_id=item.id, name=item.name, detail=detail, removed=removed)
            unreadable[item.id] = found
            if not removed:
                damaged.append(found)
    loaded = [item.with_content(contents[item.id]) if item.id in contents else item for item in items]
    return with_notices(loaded, unreadable), tuple(damaged)
