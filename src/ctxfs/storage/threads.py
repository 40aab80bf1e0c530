"""Work that runs to its end before its caller continues, whatever is cancelled, and work in a background thread.

A cancel scope of anyio's or trio's cancels until it is left, and ``anyio.CancelScope(shield=True)`` holds it back.
``Task.cancel()`` and ``asyncio.timeout`` cancel a task once, at whatever it waits for. No scope holds them back: only
work in a task of its own is safe from them. ``uninterrupted`` does both, once for all that it calls in turn.

The end of ``asyncio.run``, and many a shutdown, cancel every task that ``asyncio.all_tasks`` returns. So such a task is
not among them: its caller is, and waits for it. Nor do the threads belong to the event loop: one that shuts its own
threads down would refuse the work, or drop it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import cache, partial, wraps
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar, checkpoint_if_cancelled

from ctxfs.storage.pool import Pool, Work
from ctxfs.storage.task_group import TaskGroup
from ctxfs.text.steps import Waiting

try:
    import sniffio  # anyio keeps the name of the running event loop there, where it is installed
except ImportError:
    sniffio = None  # type: ignore[assignment]

P = ParamSpec("P")
T = TypeVar("T")

_safe: ContextVar["asyncio.Task[Any] | None"] = ContextVar("ctxfs_safe", default=None)
"""The uncancellable task in which this code runs; tasks that it starts inherit the value, but are not that task."""

_caller: ContextVar["asyncio.Task[Any] | None"] = ContextVar("ctxfs_caller", default=None)
"""The task that waits for this uninterrupted work."""

WORKING_THREADS: Final = min(32, (os.cpu_count() or 1) + 4)
"""For reading and writing files."""
WAITING_THREADS: Final = 64
"""For work that waits for a server most of the time."""
STEPPING_THREADS: Final = 40
"""For work that takes long, beside what is read and written meanwhile: as many as anyio has."""
_waiting: RunVar[anyio.CapacityLimiter] = RunVar("ctxfs_waiting")

LEAVE_S: Final = 0.25
"""A caller that was cancelled waits this much longer for a server: a server that answers at all mostly does by then."""

ASK_S: Final = 0.25
"""How often one that waits looks whether it still has to: for a caller's scope that is cancelled, which no scope tells,
and for work that has ended."""

_left: ContextVar["asyncio.Future[None] | None"] = ContextVar("ctxfs_left", default=None)
"""Done when the caller of this uninterrupted work was cancelled, and wants to leave."""

_leaving: ContextVar[bool] = ContextVar("ctxfs_leaving", default=False)
"""Whether this uninterrupted work was begun by a task that was cancelled: it is part of its clean-up."""

_trio_left: ContextVar["tuple[int, anyio.Event] | None"] = ContextVar("ctxfs_trio_left", default=None)
"""The same on trio, with the id of the task that does the work; tasks that it starts inherit the value."""

_alone: ContextVar[bool] = ContextVar("ctxfs_alone", default=False)


class StillRunning(Exception):
    """A caller that was cancelled does not wait any longer for work in a thread, which goes on by itself.

    ``cancelled``: the cancellation, which must be raised; None: the caller's caller was cancelled, and raises it.
    ``work``: the call that the thread still makes.
    """

    def __init__(self, work: Work[Any], cancelled: BaseException | None) -> None:
        super().__init__("work in a thread goes on by itself")
        self.work = work
        self.cancelled = cancelled


def uninterrupted(func: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make an async function that always runs to its end once it is called, for changes that must be whole.

    A cancellation that arrives in the meantime is raised when ``func`` has ended: that of a task by the call itself,
    that of a scope at the caller's next checkpoint. If ``func`` failed, its error is the cancellation's cause.

    A request to a server within ``func`` is then not waited for any longer: see ``answer_of``.
    """

    @wraps(func)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if _is_safe():
            return await func(*args, **kwargs)
        if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
            return await _uninterrupted_on_trio(lambda: func(*args, **kwargs))
        loop = asyncio.get_running_loop()
        left = loop.create_future()
        work = _safely(partial(func, *args, **kwargs), left, caller=asyncio.current_task(), is_leaving=_is_leaving())
        task = loop.create_task(work)
        # Not a task that `asyncio.all_tasks` returns, so that nobody cancels it; its caller is one, and waits for it.
        asyncio._unregister_task(task)  # noqa: SLF001 - documented, for extending asyncio
        try:
            hit = await _until_one([task], left)
        except (KeyboardInterrupt, SystemExit):  # the caller may undo what was half done, but not beside it
            await _until_one([task], left)
            raise
        return _result(task, hit)

    return run


class _Exit(NamedTuple):
    """What ended uninterrupted work: it is raised by the caller, since a task that raises it ends the event loop."""

    error: KeyboardInterrupt | SystemExit


async def _safely(
    work: Callable[[], Coroutine[Any, Any, T]],
    left: "asyncio.Future[None]",
    *,
    caller: "asyncio.Task[Any] | None",
    is_leaving: bool,
) -> T | _Exit:
    """Mark the task in which ``work`` runs as one that nobody cancels."""
    try:
        _safe.set(asyncio.current_task())
        _caller.set(caller)
        _left.set(left)
        _leaving.set(is_leaving)
        return await work()
    except (KeyboardInterrupt, SystemExit) as error:
        return _Exit(error)


def _is_leaving() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_safe() -> bool:
    if (task := _safe.get()) is None:
        return False
    try:
        return task is asyncio.current_task()
    except RuntimeError:  # another library's event loop, in a thread that this task started
        return False


def caller() -> "asyncio.Task[Any] | None":
    """The task that waits for the uninterrupted work that the running task does; None: there is none.

    On trio the caller does its uninterrupted work itself.
    """
    return _caller.get() if _is_safe() else None


async def raise_if_cancelled() -> None:
    """Raise a cancellation that has arrived. Uninterrupted work does not look for one: nobody cancels it."""
    if not _is_safe():
        await checkpoint_if_cancelled()


@contextmanager
def without_threads() -> Iterator[None]:
    """Do the work of worker threads in the calling thread, for an event loop that has nothing else to do.

    For programs that go through many files one after the other: a hop to a thread costs more than a short read.
    """
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def _in_place(func: Callable[[], T]) -> T:
    """Call ``func`` here, where it may block: under a name of its own, so that tests know this from an accident."""
    return func()


async def run_to_completion(func: Callable[[], T], *, waits: bool = False) -> T:
    """Run ``func`` in a worker thread and return its result.

    ``waits``: it waits for a server most of the time, so more of its kind may run at once.

    A cancellation that arrives before the start prevents it; one that arrives later waits for its end, as with
    ``uninterrupted``.
    """
    if _alone.get():
        await checkpoint_if_cancelled()
        return _in_place(func)
    if not _is_safe():
        await checkpoint_if_cancelled()
        if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
            # Nothing cancels a running thread here.
            return await to_thread.run_sync(func, limiter=_limiter(waits=waits))
    return _result(*await _ended_thread(func, threads=WAITING_THREADS if waits else WORKING_THREADS))


async def run_in_steps(func: Callable[[], T]) -> T:
    """Run ``func``, which changes nothing, in a worker thread; it ends at a checkpoint if the caller is cancelled."""
    if _alone.get():
        await checkpoint_if_cancelled()
        return _in_place(func)
    waiting = Waiting()
    try:
        if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
            return await to_thread.run_sync(waiting.run, func, abandon_on_cancel=True)
        if _is_safe():  # nobody cancels it, and an interrupt must not leave it waiting for ever
            return _result(*await _ended_thread(partial(waiting.run, func), threads=STEPPING_THREADS))
        await checkpoint_if_cancelled()
        return await _left_alone(_begun(partial(waiting.run, func), threads=STEPPING_THREADS))
    finally:
        waiting.end()


async def result_of(func: Callable[[], T], *, waits: bool = False) -> T:
    """Like ``run_to_completion``, for results that the caller has to close or undo: they are returned in any case.

    A cancellation that arrives in the meantime is delivered at the caller's next checkpoint, which must follow: before
    Python 3.13 ``asyncio.timeout`` would leave it to the next await. An interrupt is raised, without the result.
    """
    await checkpoint_if_cancelled()
    if _alone.get():
        return _in_place(func)
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return await to_thread.run_sync(func, limiter=_limiter(waits=waits))
    work, cancelled = await _ended_thread(func, threads=WAITING_THREADS if waits else WORKING_THREADS)
    if isinstance(cancelled, KeyboardInterrupt | SystemExit):
        raise cancelled
    if cancelled is not None and (task := asyncio.current_task()) is not None:
        task.uncancel()  # the same cancellation again, not a second one: asyncio.timeout counts them
        task.cancel()
    return work.result()


async def answer_of(func: Callable[[], T], *, returned: bool = False, patient: bool = True) -> T:
    """Run ``func``, which waits for a server, in a worker thread; return its result, and wait as ``run_to_completion``.

    If the caller, or that of the uninterrupted work that it is part of, is cancelled, and the server does not answer
    soon after, ``StillRunning`` is raised: no caller waits as long as a silent server is waited for.

    ``returned``: a result that is there in time is returned in any case, as by ``result_of``. ``patient``: False: a
    task that was cancelled before, and cleans up, does not wait for long either; on trio no task does.
    """
    if _alone.get():
        await checkpoint_if_cancelled()
        return _in_place(func)
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return await _answer_on_trio(func)
    left = _left.get() if _is_safe() else None
    if left is None:
        await checkpoint_if_cancelled()
        left = asyncio.get_running_loop().create_future()
    if not patient and (_leaving.get() if _is_safe() else _is_leaving()):
        _wake(left)
    work = _begun(func, threads=WAITING_THREADS)
    cancelled = await _until_done(work, left, leave_s=LEAVE_S)
    if not work.done():
        if cancelled is None and not _is_safe():
            try:
                await checkpoint_if_cancelled()  # a scope's cancellation was held back until here
            except asyncio.CancelledError as error:
                cancelled = error
        raise StillRunning(work, cancelled)
    if cancelled is None:
        return work.result()
    if returned and not isinstance(cancelled, asyncio.CancelledError):
        raise StillRunning(work, cancelled)  # an interrupt cannot be delivered later: the result is as if it came late
    if not returned or work.exception() is not None:
        raise cancelled from work.exception()
    if (task := asyncio.current_task()) is not None:
        task.uncancel()  # see result_of
        task.cancel()
    return work.result()


async def _uninterrupted_on_trio(work: Callable[[], Awaitable[T]]) -> T:
    if _left_here() is not None:
        return await work()

    async def marked(left: anyio.Event) -> T:
        token = _trio_left.set((anyio.get_current_task().id, left))
        try:
            return await work()
        finally:
            _trio_left.reset(token)

    return await _watched()(marked)


def _left_here() -> anyio.Event | None:
    """The event that is set when the caller of this uninterrupted work, on trio, is cancelled; None: there is none."""
    marked = _trio_left.get()
    return marked[1] if marked is not None and marked[0] == anyio.get_current_task().id else None


async def _answer_on_trio(func: Callable[[], T]) -> T:
    """Do what ``answer_of`` does, on trio."""
    if (left := _left_here()) is not None:
        return await _answer_until_left(func, left)
    await checkpoint_if_cancelled()
    try:
        return await _watched()(lambda left: _answer_until_left(func, left))
    except StillRunning as running:
        try:
            await checkpoint_if_cancelled()  # the cancellation was held back until here
        except anyio.get_cancelled_exc_class() as error:
            running.cancelled = error
        raise


class _BesideAWatch(Protocol):
    async def __call__(self, work: Callable[[anyio.Event], Awaitable[T]]) -> T: ...


@cache
def _watched() -> _BesideAWatch:
    """``_beside_a_watch``, in which interrupts are raised where the main task waits, and nowhere else.

    One that hits a task group as it is left, before trio's own code runs, would leave it open, and trio fails then.
    """
    import trio  # noqa: PLC0415 - installed where it runs

    return trio.lowlevel.enable_ki_protection(_beside_a_watch)


async def _beside_a_watch(work: Callable[[anyio.Event], Awaitable[T]]) -> T:
    """Run ``work`` where no scope interrupts it, with an event that is set when the caller is cancelled.

    An interrupt that hits the watch, or the end of the group, is raised like one that hits ``work``, by itself: two of
    them may come, and the caller must know that ``work`` was cut.
    """
    left = anyio.Event()
    results: list[T] = []
    failure: BaseException | None = None

    async def watch() -> None:
        with suppress(anyio.get_cancelled_exc_class()):  # the caller gets it at its next checkpoint
            await anyio.sleep_forever()
        left.set()

    try:
        async with TaskGroup() as group:
            group.start_soon(watch)
            with anyio.CancelScope(shield=True):
                try:
                    results.append(await work(left))
                except BaseException as error:  # noqa: BLE001 - raised below: the group would cancel the watch with it
                    failure = error
            group.cancel()
    except (KeyboardInterrupt, SystemExit) as interrupt:
        raise interrupt from failure
    if failure is not None:
        raise failure
    return results[0]


async def _answer_until_left(func: Callable[[], T], left: anyio.Event) -> T:
    """Run ``func`` in a thread, where no scope interrupts. Raises ``StillRunning`` soon after ``left`` is set."""
    work = Work(func)
    async with TaskGroup() as group:

        async def leave() -> None:
            await left.wait()
            await anyio.sleep(LEAVE_S)
            group.cancel()

        group.start_soon(leave)
        await to_thread.run_sync(work.run, abandon_on_cancel=True, limiter=_limiter(waits=True))
        group.cancel()
    if not work.done():
        raise StillRunning(work, None)
    return work.result()


def _limiter(*, waits: bool) -> anyio.CapacityLimiter | None:
    """How many threads may run, on trio; None: anyio's own number."""
    if not waits:
        return None
    try:
        return _waiting.get()
    except LookupError:
        _waiting.set(limiter := anyio.CapacityLimiter(WAITING_THREADS))
        return limiter


async def _ended_thread(func: Callable[[], T], *, threads: int) -> tuple[Work[T], BaseException | None]:
    """Run ``func`` in a thread to its end, on asyncio; return it, and what hit the caller in the meantime.

    An interrupt does not leave here before the thread has ended.
    """
    work = Work(_with_variables(func))  # made before it is handed over, so that an interrupt in between knows of it
    try:
        _threads(os.getpid(), threads).submit(work)
        return work, await _until_one([work], None)
    except (KeyboardInterrupt, SystemExit):
        if not work.cancel():
            await _until_one([work], None)
        raise
    finally:
        if not work.done() and not work.cancel():  # the event loop may have dropped this task
            work.wait()


def _begun(func: Callable[[], T], *, threads: int) -> Work[T]:
    """Let a thread call ``func``."""
    work = Work(_with_variables(func))
    _threads(os.getpid(), threads).submit(work)
    return work


async def _left_alone(work: Work[T]) -> T:
    """Wait for ``work``, and leave it to itself if the caller is cancelled."""
    told = [_waker(work, asyncio.get_running_loop())]
    try:
        while not work.done():
            await _ended(told)
    except asyncio.CancelledError:
        work.cancel()
        raise
    return work.result()


def _with_variables(func: Callable[[], T]) -> Callable[[], T]:
    """Let ``func`` see the caller's context variables in a thread, but for the one that says which event loop runs."""
    context = copy_context()
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return partial(context.run, func)


@cache
def _threads(_process: int, most: int) -> Pool:
    """Threads of this process: a forked one does not have those of its parent."""
    return Pool(most)


def _result(work: "Work[T] | asyncio.Future[T | _Exit]", hit: BaseException | None) -> T:
    """The result of ``work``, which has ended; ``hit`` is raised instead, unless a thread's work raised an exit itself.

    An exit that a task raised has ended the run of the event loop already, and is not raised a second time.
    """
    failure = None if work.cancelled() else work.exception()
    if isinstance(failure, KeyboardInterrupt | SystemExit):
        if hit is not None and isinstance(work, asyncio.Future):
            # The event loop now runs once more, to cancel what is left: raised again, the exit would end that too,
            # before all that waits for the end of a task has been told. AnyIO's threads would stay, and the process
            # could not end.
            raise hit from failure
        raise failure
    if hit is not None and (work.cancelled() or failure is not None):
        raise hit from failure
    outcome = work.result()
    if isinstance(outcome, _Exit):
        raise outcome.error
    if hit is not None:
        raise hit
    return outcome


async def _until_done(work: Work[Any], left: "asyncio.Future[None]", *, leave_s: float) -> BaseException | None:
    """Wait until ``work`` has ended; return what hit the caller in the meantime, as ``_until_one``.

    ``left``: becomes done with the first cancellation of the task, or soon after that of a scope. ``leave_s``: for
    how many seconds ``work`` is waited for once ``left`` is done.
    """
    loop = left.get_loop()
    cancelled = await _until_one([work, left], left)
    if not work.done():
        patience = loop.create_future()
        timer = loop.call_later(leave_s, _wake, patience)
        cancelled = await _until_one([work, patience], left) or cancelled
        timer.cancel()
    return cancelled


async def _until_one(
    waits_for: "Sequence[Work[Any] | asyncio.Future[Any]]", left: "asyncio.Future[None] | None"
) -> BaseException | None:
    """Wait until one of them is done; return the last cancellation that arrived in the meantime, or the interrupt.

    ``left``: see ``_until_done``; None: nobody asks.
    """
    hit: BaseException | None = None
    is_safe = _is_safe()
    loop = asyncio.get_running_loop()
    wakers = [_waker(one, loop) for one in waits_for]
    while not any(one.done() for one in waits_for):
        try:
            # Where only the end of the event loop cancels, nothing else has to wait. A scope holds back anyio's.
            with nullcontext() if is_safe else anyio.CancelScope(shield=True):
                await _ended(wakers)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit) as error:
            if hit is None or isinstance(hit, asyncio.CancelledError):
                hit = error
            if left is not None:
                _wake(left)
        if left is None or left.done() or is_safe or any(one.done() for one in waits_for):
            continue
        # A cancelled scope has an effective deadline of minus infinity.
        if anyio.current_effective_deadline() <= loop.time():
            _wake(left)
    return hit


def _waker(work: "Work[Any] | asyncio.Future[Any]", loop: asyncio.AbstractEventLoop) -> "asyncio.Future[Any]":
    """What tells the event loop of the end of ``work``, which alone says whether it has ended."""
    if isinstance(work, asyncio.Future):
        return work
    waker = loop.create_future()

    def tell(_: Work[Any]) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits there any more
            loop.call_soon_threadsafe(_wake, waker)

    work.add_done_callback(tell)
    return waker


def _wake(waiter: "asyncio.Future[None]", _: "asyncio.Future[Any] | None" = None) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _ended(waits_for: "Sequence[asyncio.Future[Any]]") -> None:
    """Wait until one of them is done, which a cancellation leaves alone; ``asyncio.wait`` does far more for each.

    Not longer than ``ASK_S``: an interrupt that hits the event loop inside of a callback drops it, and the loop may go
    on.
    """
    loop = waits_for[0].get_loop()
    waiter = loop.create_future()
    wake = partial(_wake, waiter)
    for one in waits_for:
        one.add_done_callback(wake)
    timer = loop.call_later(ASK_S, _wake, waiter)
    try:
        await waiter
    finally:
        timer.cancel()
        for one in waits_for:
            one.remove_done_callback(wake)


def begin(func: Callable[[], T]) -> Work[T]:
    """Start ``func`` in a thread of its own, where it sees the caller's context variables; ``result`` waits for it.

    The thread ends with the work: a thread that is kept would be missing in a forked process.
    """
    work = Work(_with_variables(func))
    Pool(1).submit(work)
    return work
