"""What was decided about the parts of a history: a table that only grows. Pure.

The output of a history is a function of its parts and of this table. So the same beginning of a history, with no new
decision about it, is sent as the same bytes, even after a restart, a fork, a rewind or a retry.
"""

from collections.abc import Iterable, Sequence

from ctxfs.session.fingerprint import Key, sha256_of
from ctxfs.session.records import Decided


def key_of(decided: Decided) -> Key:
    """The part that a decision is about."""
    return Key(decided.kind, decided.call_id, decided.sha256)


class Decisions:
    """The decisions of a session, in the order in which they were made; the first about a part is the one that counts.

    A part is also recognized by its replacement, which a framework may keep instead of the original: by the hash of
    the whole replacement, and never by its text.
    """

    def __init__(self, decided: Iterable[Decided] = ()) -> None:
        self._log: list[Decided] = []
        self._by_key: dict[Key, Decided] = {}
        self._by_hash: dict[tuple[str, str], Decided] = {}
        self._by_replacement: dict[tuple[str, str, str], Decided] = {}
        self.take(decided)

    def __len__(self) -> int:
        return len(self._log)

    def since(self, number: int) -> Sequence[Decided]:
        """The decisions after the first ``number``."""
        return self._log[number:]

    def take(self, decided: Iterable[Decided]) -> None:
        """Take in decisions that are durable, also again; of two about one part, the first one stays in force."""
        for one in decided:
            key = key_of(one)
            if key in self._by_key:
                continue
            self._by_key[key] = one
            self._log.append(one)
            self._by_hash.setdefault((key.kind, key.sha256), one)
            if isinstance(one.content, str) and not one.content:
                continue
            replacement = sha256_of(one.content)
            self._by_replacement.setdefault((one.kind, one.call_id, replacement), one)
            self._by_replacement.setdefault((one.kind, "", replacement), one)

    def of(self, key: Key) -> Decided | None:
        """The decision about a part; None if there is none.

        If its call has no id, or had none at the time of the decision, the part is identified by its content alone.
        """
        if not self._log:
            return None
        found = self._by_key.get(key)
        if found is not None:
            return found
        same = self._by_hash.get((key.kind, key.sha256))
        if same is None or (key.call_id and same.call_id):
            return None
        return same

    def replacing(self, key: Key) -> Decided | None:
        """The decision whose replacement this part is; None if it is not a replacement."""
        if not self._log:
            return None
        found = self._by_replacement.get((key.kind, key.call_id, key.sha256))
        return found or self._by_replacement.get((key.kind, "", key.sha256))
