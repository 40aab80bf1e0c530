"""What a context holds now: its items, their tokens, and which of them are durable."""

from typing import Self

from ctxfs.context.live import LiveTranscript
from ctxfs.context.transcript import Transcript
from ctxfs.errors import SessionClosed
from ctxfs.eviction.budget import Calibration
from ctxfs.eviction.window import CompactionController
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import ToolCall
from ctxfs.messages.tokens import TokenCounter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.state import OffloadStats


class ContextHeld:
    """The part of ``Context`` that shows what is in it now."""

    fs: ContextFileSystem
    overhead_tokens: int
    _counter: TokenCounter | None
    _controller: CompactionController
    _live: LiveTranscript

    @property
    def _transcript(self) -> Transcript:
        return self._live.transcript

    @property
    def session_id(self) -> str:
        """The session's id, ``session_{YYYYMMDD_HHMMSS}_{6 random}`` in UTC unless you chose another."""
        return self.fs.session_id

    @property
    def items(self) -> tuple[ContextItem, ...]:
        """Everything in the context now, oldest first."""
        return tuple(self._transcript.items.values())

    @property
    def conversation(self) -> Self:
        """The context itself, whose ``items`` "Context FileSystem 上下文卸载功能" finds under this name."""
        return self

    @property
    def token_count(self) -> int:
        """Tokens of all items as they are now, by the counter, without the provider's own overhead."""
        return self._transcript.tokens

    @property
    def counted_tokens(self) -> int:
        """The next prompt by the counter: all items, and the overhead of every call."""
        return self._transcript.tokens + self.overhead_tokens

    @property
    def counter(self) -> TokenCounter:
        """The counter behind all figures."""
        if self._counter is None:
            raise SessionClosed("the counter is loaded by open(): call it first")
        return self._counter

    @property
    def calibration(self) -> Calibration:
        """How the provider's bills compare with the counter, for the model in use."""
        return self._controller.calibration

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Tool calls of the last reply that have no result yet, in order."""
        return tuple(self._transcript.open_calls)

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """Ids of items that exist only in memory: writing them failed, or was put off. The next commit has them."""
        return tuple(self._live.recorder.waiting)

    @property
    def eager_stats(self) -> OffloadStats:
        """What was evicted before it was ever sent, in the whole life of the session; 0.1.0 did not record it."""
        return self.fs.state.eager_stats

    async def record(self) -> None:
        """Make pending items durable, and evict items that need not be sent at all, in one commit; see ``add``.

        A failure is reported as an event, and is retried with the next change. Raises ``SessionClosed`` if the context
        is not open, and ``OutcomeUnknown`` if a store on a server does not say whether it took them: the next change
        asks again.
        """
        async with self._live.changing():
            await self._live.record_new()

    def check_recorded(self) -> None:
        """Raise ``Unrecorded`` if items exist only in memory; its cause is the last failure to write them."""
        self._live.recorder.check_recorded(self.session_id)
