"""Making a context fit its window: a ``Reduction`` decides the next step, and this module carries it out."""

from functools import partial

from ctxfs.context.live import LiveTranscript
from ctxfs.errors import ModelError
from ctxfs.eviction.events import SummaryFailed
from ctxfs.eviction.offload_plan import Plan
from ctxfs.eviction.reduction import AskForSummary, Done, Reduction
from ctxfs.eviction.window import CompactionController, Summarize
from ctxfs.messages.base import Reply
from ctxfs.storage.threads import run_to_completion, uninterrupted


async def make_room(
    reduction: Reduction, live: LiveTranscript, controller: CompactionController, *, overhead_tokens: int
) -> None:
    """Do what ``reduction`` says, step by step.

    Raises:
        ContextOverflow: nothing more can be reduced, or not enough could be stored.

    """
    live.warn_of_forced()
    live.notices.last_failure = None
    answer: Reply | ModelError | None = None
    with live.fs.writer.journal.one_change():  # all that is evicted is undone together
        while True:
            view = live.view(live.transcript.tokens + overhead_tokens)
            step = await run_to_completion(partial(reduction.next_step, view, answer))
            answer = None
            match step:
                case Plan():
                    async with live.changing():
                        await live.apply(step)
                case AskForSummary():
                    assert controller.summarize is not None
                    answer = await _summary(step.prompt, controller.summarize, live)
                case SummaryFailed():
                    live.notices.emit(step)
                case Done():
                    controller.settled(step)
                    if step.compacted is not None:
                        live.notices.emit(step.compacted)
                    if step.error is None:
                        return
                    failed = live.notices.last_failure
                    if failed is None:
                        raise step.error
                    raise step.error.because(f"storing failed ({failed}), so these items are still in it") from failed


async def _summary(prompt: str, summarize: Summarize, live: LiveTranscript) -> Reply | ModelError:
    """Ask the model, and record what it billed."""
    try:
        reply = await summarize(prompt)
    except ModelError as error:
        return error
    await _bill(reply, live)
    return reply


@uninterrupted
async def _bill(reply: Reply, live: LiveTranscript) -> None:
    async with live.changing():
        live.pending.called(live.fs.writer.call_made(reply.usage, reply.model, summary=True))
        await live.record()
