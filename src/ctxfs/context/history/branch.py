"""One branch of a history: its view, its bills, and the places where prompt-cache breakpoints are worth their price."""

from dataclasses import dataclass, field

from ctxfs.context.history.view import HistoryView
from ctxfs.errors import ContextOverflow
from ctxfs.eviction.compaction import View
from ctxfs.eviction.window import CompactionController
from ctxfs.messages.cache_breakpoints import CacheMarks


@dataclass(slots=True)
class Branch:
    """What is kept of one branch between two rewrites. ``failed``: something that was due could not be stored.

    ``unsettled``: due evictions have not been looked for, or not all of them could be carried out.
    """

    view: HistoryView
    controller: CompactionController
    marks: CacheMarks = field(default_factory=CacheMarks)
    overflow: ContextOverflow | None = None
    failed: bool = False
    unsettled: bool = True
    overhead_tokens: int = 0

    @property
    def counted_tokens(self) -> int:
        """The next prompt by the counter."""
        return self.view.transcript.tokens + self.overhead_tokens

    def seen(self) -> View:
        """The branch as the window's guard sees it."""
        transcript = self.view.transcript
        items = tuple(transcript.items.values())
        paths = {item.id: transcript.path_of(item) for item in items}
        return View(
            items=items,
            counted_tokens=self.counted_tokens,
            paths=paths,
            slot=None,
            with_placeholder=transcript.with_placeholder,
            reader=self.view.settings.read_tool,
        )
