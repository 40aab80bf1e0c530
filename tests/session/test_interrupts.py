"""Ctrl-C that hits opening or closing, wherever it does: the session's lock is free, also without ``async with``."""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Context, ContextFileSystem
from interrupting import Interrupt, interrupted_by

pytestmark = pytest.mark.slow

_ID = "session_1"
Session = ContextFileSystem | Context


async def _opens(session: Session, interrupt: Interrupt) -> None:
    with interrupted_by(interrupt):
        await session.open()
    await session.close()


async def _closes(session: Session, interrupt: Interrupt) -> None:
    await session.open()
    with interrupted_by(interrupt):
        await session.close()


async def _is_whole(root: Path) -> bool:
    async with ContextFileSystem(_ID, root_path=root) as fs:  # raises SessionLocked
        return (await fs.verify()).ok


@pytest.fixture
def no_collection() -> Iterator[None]:
    """An object that is dropped releases its lock: nothing may count on when."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("use", [_opens, _closes])
@pytest.mark.parametrize(
    ("make", "stride"),
    [
        (lambda root: ContextFileSystem(_ID, root_path=root), 3),
        (lambda root: Context(_ID, root_path=root), 7),
    ],
    ids=["ContextFileSystem", "Context"],
)
def test_an_interrupt_keeps_no_lock(
    tmp_path: Path,
    make: Callable[[Path], Session],
    stride: int,
    use: Callable[[Session, Interrupt], Coroutine[Any, Any, None]],
) -> None:
    hit: list[str] = []
    number = 2  # the first call is that of `open` or `close`, which has not begun anything
    while True:
        interrupt = Interrupt(number)
        with suppress(KeyboardInterrupt):
            asyncio.run(use(make(tmp_path), interrupt))
        if interrupt.where is None:
            break
        hit.append(interrupt.where)
        assert asyncio.run(_is_whole(tmp_path)), hit[-1]
        number += stride
    assert len(hit) > 10
