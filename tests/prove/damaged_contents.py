"""One content file after the other is damaged or lost, in random sessions: each resumes, says so, and heals.

With the file away the session must open, hold everything else as it was, be one that a provider takes, and go on. The
file must be left as it is, and once it is restored all must be there again.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

from ctxfs.context.context import Context
from ctxfs.errors import CorruptContent, StorageError
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import UserMessage
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import LocalStore
from ctxfs.testing.invariants import violations
from prove.sessions import Session, Skill, session

__all__ = ["DAMAGES", "Shut", "examine"]

SESSION_ID = "s"
SIZES = (0, 20, 300, 2_400, 30_000)
INLINE_LIMIT_CHARS = 200
KEEP_RECENT = {"Read": 1, "Bash": 2}


def delete(path: Path, draw: random.Random) -> None:
    path.unlink()


def flip(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def cut(path: Path, draw: random.Random) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size))


def swap(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(path.stat().st_size))


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (delete, flip, cut, swap)


class Shut(ContextFileSystem):
    """A session that one damaged content keeps shut, as a control."""

    async def items(self, *, load: bool = True) -> tuple[ContextItem, ...]:
        items = await super().items(load=load)
        for item in items:
            if item.damaged is not None:
                raise CorruptContent(item.name, item.damaged)
        return items


def _context(root: Path, kind: type[ContextFileSystem] = ContextFileSystem) -> Context:
    fs = kind(
        SESSION_ID,
        root_path=root,
        store=LocalStore(root, SESSION_ID, durability="process"),
        inline_limit_chars=INLINE_LIMIT_CHARS,
    )
    # Only keep-recent: by price, more could leave in the time that a content is damaged.
    return Context(fs, keep_recent=KEEP_RECENT, pricing=None, counter=CharsCounter())


async def _play(context: Context, made: Session) -> None:
    if made.system is not None:
        await context.set_system_prompt(made.system)
    for turn in made.turns:
        if isinstance(turn.user, Skill):
            await context.add_skill_prompt("skill", turn.user.text)
        else:
            await context.add(turn.user)
        for step in turn.steps:
            await context.add(step.reply, *step.results)
            await context.evict()
        await context.add(turn.answer)
    await context.evict()


async def examine(
    number: int, root: Path, *, kind: type[ContextFileSystem] = ContextFileSystem
) -> tuple[int, list[str]]:
    """Damage each content of the session ``number`` once; return how many there are, and what should not be so."""
    draw = random.Random(number)
    async with _context(root) as context:
        await _play(context, session(number, sizes=SIZES))
        stored = dict(context.fs.state.stored)
    found: list[str] = []
    for entry in stored.values():
        damage = draw.choice(DAMAGES)
        problems = await _damaged_once(root, entry, damage, draw, kind)
        found += [f"session {number}, {entry.name}, {damage.__name__}: {problem}" for problem in problems]
    return len(stored), found


async def _damaged_once(
    root: Path,
    entry: Stored,
    damage: Callable[[Path, random.Random], None],
    draw: random.Random,
    kind: type[ContextFileSystem],
) -> list[str]:
    async with _context(root) as context:
        before = context.items
    path = root / SESSION_ID / entry.name
    whole = path.read_bytes()
    damage(path, draw)
    left = _bytes_of(path)
    try:
        async with _context(root, kind) as context:
            found = await _while_damaged(context, entry, before, harmless=left == whole)
            await context.add(UserMessage("going on"))
    except Exception as error:  # noqa: BLE001 - whatever keeps the session shut is a finding
        path.write_bytes(whole)
        return [f"the session does not open: {error!r}"]
    if _bytes_of(path) != left:
        found.append("the file was changed")
    path.write_bytes(whole)
    async with _context(root) as context:
        if context.items[: len(before)] != before:
            found.append("what was restored is not what it was")
        found += [str(problem) for problem in (await context.fs.verify()).problems]
    return found


async def _while_damaged(
    context: Context, entry: Stored, before: tuple[ContextItem, ...], *, harmless: bool
) -> list[str]:
    found: list[str] = []
    for old, item in zip(before, context.items, strict=True):
        if item.damaged is None and item != old:
            found.append(f"{item.id} changed")
        elif item.damaged is not None and (item.id != entry.item_id or "is damaged" not in str(item.message.content)):
            found.append(f"{item.id} is marked")
    try:
        await context.fs.load(entry.item_id)
        readable = True
    except StorageError:
        readable = False
    marked = {item.id for item in context.items if item.damaged is not None}
    inside = any(old.id == entry.item_id and not old.offloaded for old in before)
    if readable != harmless and not readable and inside and entry.item_id not in marked:
        found.append("it is not marked")
    body = await context.request(cache=False)
    found += [f"a provider refuses it: {v}" for v in violations({"model": "m", "max_tokens": 1, **body})]
    return found


def _bytes_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
