"""What a context loses when items leave it. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ctxfs.economics.held import Held

__all__ = ["Walked", "walked", "without"]


def without(held: Mapping[str, Held], stays: Collection[str]) -> dict[str, Held]:
    """What is ``held`` but for what ``stays``: that counts with the item before it."""
    kept, last = dict[str, Held](), ""
    for item_id, h in held.items():
        if item_id not in stays:
            kept[item_id] = h
            last = item_id
        elif last:
            kept[last] = kept[last].followed_by(h.tokens + h.tokens_after)
    return kept


@dataclass(slots=True)
class Walked:
    """What leaving does, in tokens. ``behind``: what stays where something leaves, by the held item before it."""

    freed_new: int = 0
    freed_pinned: int = 0
    priced: int = 0
    rewritten: int = 0
    behind: dict[str, int] = field(default_factory=dict)
    lessons: dict[str, str] = field(default_factory=dict)


def walked(held: dict[str, Held], leaving: Collection[str], *, new_tokens: int) -> Walked:
    """Walk from the end of the context to the item before the first that leaves; what is older is not looked at."""
    found, to_find, passed, behind, unsent = Walked(), len(leaving), 0, 0, new_tokens
    lessons = found.lessons
    for item_id, h in reversed(held.items()):
        whole = h.tokens + h.tokens_after
        unsent -= whole
        if item_id not in leaving:
            if behind:
                found.behind[item_id], behind = behind, 0
            if not to_find:
                break
            passed += whole
            continue
        saved = h.saved_tokens
        to_find -= 1
        behind += whole - saved
        passed += whole - saved
        lessons[item_id] = h.lesson
        if unsent >= 0:
            found.freed_new += saved
        elif h.candidate.pinned:
            found.freed_pinned += saved
        else:
            found.priced += saved
            found.rewritten = passed
    return found
