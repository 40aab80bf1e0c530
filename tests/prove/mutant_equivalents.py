"""Mutants that no user could tell from the code as it is, with the reason; they are not in the sample."""

from dataclasses import dataclass

from prove.mutations import Mutant

__all__ = ["EQUIVALENT", "Equivalent", "is_equivalent"]


@dataclass(frozen=True, slots=True)
class Equivalent:
    """In a line of a module (below ``src/ctxfs``), what becomes of ``before``, and why that changes nothing."""

    module: str
    line: str
    before: str
    after: tuple[str, ...]
    reason: str


_LAYOUT, _INDEX, _FILES = "messages/names.py", "session/index.py", "storage/files.py"
_LOCAL, _FILES = "storage/local.py", "storage/files.py"
_HINT = "a hint, that the system may begin to write: the sync after it is what counts"
_PIECE = "only how much is compared at a time"
_SAME = "a short cut: what follows comes to the same"
_CACHE = "what is not kept is read or opened again: only time"
_RUN = "only how much is read and searched at a time"
_NO_PLACE = "text that is in memory has no place in the file, and nobody asks for it"
_UNIQUE = "any number that no other temporary file of the process has"
_COUNTS_AGAIN = "the next number is counted from an earlier one, and is the same"

EQUIVALENT = (
    Equivalent(_LAYOUT, "self._next_message()", "self._next_message()", ("pass",), _COUNTS_AGAIN),
    Equivalent(
        _LAYOUT, "draft._messages = self._messages", "draft._messages = self._messages", ("pass",), _COUNTS_AGAIN
    ),
    Equivalent(
        _INDEX,
        "if len(pending) >= ENTRIES_A_CHUNK:",
        "len(pending) >= ENTRIES_A_CHUNK",
        ("(not (len(pending) >= ENTRIES_A_CHUNK))",),
        "the same bytes in pieces of another size",
    ),
    Equivalent(_INDEX, "if len(pending) >= ENTRIES_A_CHUNK:", ">=", (">",), "the same bytes in other pieces"),
    Equivalent(_INDEX, "ENTRIES_A_CHUNK = 256", "256", ("512", "128"), "the same bytes in pieces of another size"),
    Equivalent(
        _INDEX,
        """if position < 0 or not data.endswith(b'"}\\n'):""",
        "<",
        ("<=",),
        "a checksum at the very beginning has no index before it: refused all the same, some lines below",
    ),
    Equivalent(
        _INDEX, """if position < 0 or not data.endswith(b'"}\\n'):""", "0", ("1",), "the same: no index is a byte long"
    ),
    Equivalent(_FILES, "fs.begin_sync(fd, size, len(chunk))", "fs.begin_sync(fd, size, len(chunk))", ("pass",), _HINT),
    Equivalent(_FILES, "if sync:  # the disk writes while the next chunk is made", "sync", ("(not (sync))",), _HINT),
    Equivalent(_FILES, "size = 0", "0", ("1",), _HINT),
    Equivalent(_FILES, "size += len(chunk)", "size += len(chunk)", ("pass",), _HINT),
    Equivalent(_FILES, "size += len(chunk)", "+=", ("-=",), _HINT),
    Equivalent(_FILES, "while piece := fs.read(fd, 1 << 20, position):", "1", ("2",), _PIECE),
    Equivalent(_FILES, "while piece := fs.read(fd, 1 << 20, position):", "20", ("21", "19"), _PIECE),
    Equivalent(
        "storage/local.py",
        "if other.identity != self._fs.stat_handle(dir_fd).identity:",
        """if other.identity != self._fs.stat_handle(dir_fd).identity:
                return""",
        ("pass",),
        _SAME,
    ),
    Equivalent(
        "session/content/encoding.py",
        'tail = data.rfind(b"\\\\", -5)  # of six characters, which the longest escape sequence has, five are split',
        "5",
        ("6",),
        "a sequence that is whole is left as it is",
    ),
    Equivalent(
        "context/commit.py",
        "for item in items[place:]:",
        "place",
        ("(place) + 1",),
        "what stands there goes itself",
    ),
    Equivalent(
        "session/content/reader.py", "READ_AHEAD_BLOCKS = 4", "4", ("5", "3"), "only how much is read at a time"
    ),
    Equivalent(
        "session/content/reader.py",
        "if self.stored.size_bytes <= BLOCK:",
        "<=",
        ("<",),
        "the same in a thread",
    ),
    Equivalent("session/content/reader.py", "INDEXES_KEPT = 16", "16", ("17", "15"), _CACHE),
    Equivalent("session/content/reader.py", "if len(self._indexes) > INDEXES_KEPT:", ">", (">=",), _CACHE),
    Equivalent("eviction/window.py", "self._again_at = 0.0", "0.0", ("1.0",), "no context over its mark is smaller"),
    Equivalent("storage/directories.py", "MAX_OPEN = 64", "64", ("128", "32"), _CACHE),
    Equivalent("session/content/encoding.py", "index.add(piece, 0)", "0", ("1",), _NO_PLACE),
    Equivalent(
        "storage/local.py", "OTHERS = 0o077", "0o077", ("126",), "what is its owner's alone is made so once more"
    ),
    Equivalent(
        "session/journal_writer.py",
        "self._index_size = 0",
        "0",
        ("1",),
        "an index is written as the session is opened, and its size is known from then on",
    ),
    Equivalent(_LOCAL, "self._temp_number += 1", "+=", ("-=",), _UNIQUE),
    Equivalent(_LOCAL, "self._temp_number += 1", "1", ("2",), _UNIQUE),
    Equivalent(_LOCAL, "self._temp_number = 0", "0", ("1",), _UNIQUE),
    Equivalent(
        "storage/lock_file.py",
        "self._fs.unlock(self._fd)",
        "self._fs.unlock(self._fd)",
        ("pass",),
        "closing releases it too",
    ),
    Equivalent(
        "session/content/blocks.py",
        "if not data.startswith(INDEX_MAGIC) or len(data) < start + _CRC.size or len(rows) % _ROW.size:",
        "+",
        ("-",),
        "shorter data has no checksum that matches: refused all the same",
    ),
    Equivalent(
        "session/content/encoding.py", "while len(rest) >= size:", ">=", (">",), "the last piece is given out below"
    ),
    Equivalent(
        "session/content/reader.py", "if self._last is not None and self._last[0] == number:", "0", ("1",), _CACHE
    ),
    Equivalent(
        "session/content/reader.py",
        "self._indexes[stored.name] = index",
        "self._indexes[stored.name] = index",
        ("pass",),
        _CACHE,
    ),
    Equivalent("session/content/reader.py", "LONGEST_RUN_BLOCKS = 112", "112", ("56", "224"), _RUN),
    Equivalent(
        "eviction/budget.py",
        "return self.base_real / self.base_counted if self.base_counted else 0.0",
        "0.0",
        ("1.0",),
        "less than nothing is not counted: nobody asks then",
    ),
    Equivalent(
        "eviction/compaction.py", "if not item_ids:", "if not item_ids:\n        return frozenset()", ("pass",), _SAME
    ),
    Equivalent("messages/names.py", "continue", "continue", ("pass",), "counted already: the loop finds what it found"),
    Equivalent("storage/threads.py", "WAITING_THREADS: Final = 64", "64", ("128", "32"), "only how many work at once"),
)

_KNOWN = {(entry.module, entry.line, entry.before, after) for entry in EQUIVALENT for after in entry.after}


def is_equivalent(mutant: Mutant) -> bool:
    """Whether the table has this mutant."""
    return (mutant.module, mutant.source_line, mutant.before, mutant.after) in _KNOWN
