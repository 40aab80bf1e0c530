"""Every sync, every check of a checksum and every guard of what a session may touch, and the code without it.

Each stands here by name, as the text that is there once and the text without the guard, so that whoever changes one
changes its line here too. Removing any single one must fail a test.
"""

from collections.abc import Callable
from dataclasses import dataclass

from prove.mutations import Mutant, removal

__all__ = ["EQUIVALENT", "REMOVALS", "Removal", "removals"]


@dataclass(frozen=True, slots=True)
class Removal:
    """A guard: what it is called, the module below ``src/ctxfs``, its text and the text without it."""

    name: str
    module: str
    before: str
    after: str


_DIRS, _LOG = "storage/directories.py", "storage/log_file.py"
_LOCAL, _PORT, _BASE = "storage/local.py", "storage/port.py", "storage/base.py"
_FILES, _JOURNAL, _INDEX = "storage/files.py", "session/journal.py", "session/index.py"
_CONTENT, _ENCODING, _RECOVERY = "session/content/reader.py", "session/content/encoding.py", "session/recovery.py"
_COMPRESSION, _VERIFY = "session/content/compression.py", "session/verify.py"
_LOCK, _ERASING = "storage/lock_file.py", "session/cleanup/erasing.py"
_REMOVAL = "storage/removal.py"
_LAYOUT, _ARCHIVE, _TRANSFER = "messages/names.py", "session/transfer/archive.py", "session/transfer/sessions.py"

SYNCS = (
    Removal("the system's sync", _PORT, "        else:\n            os.fsync(fd)", "        else:\n            pass"),
    Removal(
        "of a content before its name", _FILES, "            if sync:\n                fs.sync(fd)", "            pass"
    ),
    Removal(
        "of a directory's new names",
        _LOCAL,
        'with writing("/".join(directory)):\n                self._directories.sync(directory)\n        for',
        "pass\n\n        for",
    ),
    Removal(
        "of a file that is replaced",
        _LOCAL,
        "temp = self._write_temp(dir_fd, chunks, durable=True)",
        "temp = self._write_temp(dir_fd, chunks, durable=False)",
    ),
    Removal(
        "of a replaced file's name",
        _LOCAL,
        "rename_temp(self._fs, dir_fd, temp, parts[-1])\n            self._directories.sync(parts[:-1])",
        "rename_temp(self._fs, dir_fd, temp, parts[-1])",
    ),
    Removal(
        "of names that are taken back",
        _LOCAL,
        "parts[-1])\n                self._directories.sync(parts[:-1])",
        "parts[-1])",
    ),
    Removal(
        "of a growing file", _LOCAL, "if sync and self._sync_enabled:\n                    self._fs.sync(fd)", "pass"
    ),
    Removal("of a growing file's name", _LOCAL, "self._directories.sync(tuple(above))", "pass"),
    Removal(
        "of names that are deleted",
        _LOCAL,
        'with writing("/".join(directory)):\n                    self._directories.sync(directory)',
        "pass",
    ),
    Removal(
        "of names that a fork shares",
        _LOCAL,
        'with self._writing(), writing("/".join(directory)):\n                self._directories.sync(directory)',
        "pass",
    ),
    Removal("of who removed a session", _REMOVAL, "        fs.sync(fd)", "        pass"),
    Removal(
        "of the first record of that",
        _REMOVAL,
        "    finally:\n        close_quietly(fs, fd)\n    fs.sync(root_fd)",
        "    finally:\n        close_quietly(fs, fd)",
    ),
    Removal(
        "of a removed session's hidden name",
        _REMOVAL,
        "    try:\n        fs.sync(root_fd)",
        "    try:\n        pass",
    ),
    Removal("of what a dead writer left", _LOCAL, "if self._sync_enabled:\n            self._fs.sync(dir_fd)", "pass"),
    Removal("of a journal that is opened", _LOG, "self._sync(self._fd)", "pass"),
    Removal("of an opened journal's name", _LOG, "self._sync(dir_fd)", "pass"),
    Removal(
        "of what is appended to the journal",
        _LOG,
        "write_all(self._fs, fd, [data])\n            self._sync(fd)",
        "write_all(self._fs, fd, [data])",
    ),
    Removal(
        "of a journal that is repaired",
        _LOG,
        "stat_handle(fd))\n            self._fs.truncate(fd, self.length)\n            self._sync(fd)",
        "stat_handle(fd))\n            self._fs.truncate(fd, self.length)",
    ),
    Removal(
        "of a journal that is cut",
        _LOG,
        "length)\n        try:\n            self._fs.truncate(fd, self.length)\n            self._sync(fd)",
        "length)\n        try:\n            self._fs.truncate(fd, self.length)",
    ),
    Removal("of the journal, in one place", _LOG, "if self._sync_enabled:\n            self._fs.sync(fd)", "pass"),
    Removal("of a directory above a new one", _DIRS, "self._fs.sync(parent)", "pass"),
    Removal("of directories, in one place", _DIRS, "            self._fs.sync(fd)\n", "            pass\n"),
    Removal("of what is above a new root", _DIRS, "            fs.sync(parent)", "            pass"),
    Removal(
        "of a new session's name",
        _LOCAL,
        "before this\n                    self._fs.sync(root_fd)",
        "before this\n                    pass",
    ),
    Removal("of a file outside of sessions", _FILES, "[data], sync=True)", "[data], sync=False)"),
    Removal("of the name of a file outside of sessions", _FILES, "port.sync(dir_fd)", "pass"),
    Removal(
        "of what is above a file outside of sessions", _FILES, "path.parent, sync=True)", "path.parent, sync=False)"
    ),
    Removal("of an export", _ARCHIVE, "self._fs.sync(self._fd)", "pass"),
    Removal("of an export's name", _ARCHIVE, "self._fs.sync(self._dir_fd)", "pass"),
    Removal("of an import's name", "storage/local_sessions.py", "fs.sync(root_fd)", "pass"),
    Removal(
        "of contents that are published",
        _LOCAL,
        "file.chunks, durable=True)",
        "file.chunks, durable=False)",
    ),
    Removal("of a growing file that ends", "session/content/growing.py", 'b"", sync=True', 'b"", sync=False'),
)

CHECKSUMS = (
    Removal("a journal line's", _JOURNAL, " or _crc(seq, rec) != crc:", ":"),
    Removal(
        "a journal line's sequence number in it",
        _JOURNAL,
        'zlib.crc32(rec, zlib.crc32(b"%d:" % seq))',
        "zlib.crc32(rec)",
    ),
    Removal("a journal line's length", _JOURNAL, "len(rec) != length or ", ""),
    Removal("a journal line's place", _JOURNAL, "if last is None or line.seq < last_seq:", "if last is None:"),
    Removal(
        "what two journal lines of one number claim", _JOURNAL, "if taken.intersection(map(_claim, new)):", "if False:"
    ),
    Removal("journal lines that are missing", _JOURNAL, "if line.seq > last_seq + 1:", "if False:"),
    Removal("holes at the journal's end", _JOURNAL, "if data.find(_HOLE, start, end) < 0:", "if True:"),
    Removal(
        "the index's",
        _INDEX,
        "if data[position + len(_CRC_HEAD) : -3] !=",
        "if False and data[position + len(_CRC_HEAD) : -3] !=",
    ),
    Removal("the index's end", _INDEX, """ or not data.endswith(b'"}\\n')""", ""),
    Removal(
        "a block index's",
        "session/content/blocks.py",
        "if zlib.crc32(memoryview(data)",
        "if False and zlib.crc32(memoryview(data)",
    ),
    Removal("a block index's kind", "session/content/blocks.py", "not data.startswith(INDEX_MAGIC) or ", ""),
    Removal("a block's", _CONTENT, "if digest(block) != index.row(number)[3]:", "if False:"),
    Removal("a known block index's", _CONTENT, "found is None or found.root != stored.digest", "found is None"),
    Removal("a kept block index's", _CONTENT, "if index.root == stored.digest:", "if True:"),
    Removal("a content's", _CONTENT, "        if index.root != stored.digest:", "        if False:"),
    Removal(
        "a content's that only the index knows",
        "session/discovery.py",
        "(await scan_blocks(store, indexed)).root == indexed.digest",
        "await scan_blocks(store, indexed)",
    ),
    Removal("an envelope's end", "session/discovery.py", "if await store.read(name, end) != trailer:", "if False:"),
    Removal(
        "the index against the journal",
        _RECOVERY,
        "index is None or bool(contradictions(index, state))",
        "index is None",
    ),
    Removal(
        "the index against the journal, in verify",
        "session/verify.py",
        "wrong = contradictions(index, state)",
        "wrong = []",
    ),
    Removal(
        "contents, in verify",
        "session/verify.py",
        "index = await check_file(store, entry, grows=grows)",
        "index = None",
    ),
    Removal("a checked envelope's head", _VERIFY, "if found != header:", "if False:"),
    Removal(
        "a checked content's",
        _VERIFY,
        "if (index.root, index.size_bytes, index.count) != (stored.digest, stored.size_bytes, stored.blocks):",
        "if False:",
    ),
    Removal(
        "a checked envelope's end",
        _VERIFY,
        "if await store.read(stored.name, end, len(trailer) + 1) != trailer:",
        "if False:",
    ),
    Removal("a checked block index's", _VERIFY, "if found.to_bytes() != index.to_bytes():", "if False:"),
    Removal("a part's of an archive", _ARCHIVE, 'if tail["sha256"] != checksum.hexdigest():', "if False:"),
    Removal("an archive's lines", _ARCHIVE, 'if last != {"end": expected}:', "if False:"),
    Removal("an archive's end", _ARCHIVE, "        if more:", "        if False:"),
    Removal("an imported content's", _TRANSFER, "index = await check_file(store, entry)", "index = None"),
    Removal(
        "an exported content's", _TRANSFER, "await check_file(store, entry, grows=entry.name in held.growing)", "pass"
    ),
)

CONTAINMENT = (
    Removal("links in a directory's place", _PORT, "os.O_DIRECTORY | os.O_NOFOLLOW", "os.O_DIRECTORY"),
    Removal(
        "links in a new file's place",
        _PORT,
        "os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW",
        "os.O_CREAT | os.O_APPEND",
    ),
    Removal("what is there in a new file's place", _PORT, " | os.O_EXCL", ""),
    Removal(
        "links in a file's place", _PORT, "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK", "os.O_RDONLY | os.O_NONBLOCK"
    ),
    Removal(
        "pipes in a file's place", _PORT, "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK", "os.O_RDONLY | os.O_NOFOLLOW"
    ),
    Removal(
        "links in the journal's place",
        _PORT,
        "os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK",
        "os.O_APPEND | os.O_NONBLOCK",
    ),
    Removal(
        "a link where a name is looked at",
        _PORT,
        "_file_stat(os.stat(name, dir_fd=dir_fd, follow_symlinks=False))",
        "_file_stat(os.stat(name, dir_fd=dir_fd))",
    ),
    Removal(
        "a link where directories are listed", _PORT, "    if entry.is_symlink():\n        return FileKind.LINK\n", ""
    ),
    Removal("modes under any umask, of a file", _PORT, "os.fchmod(fd, FILE_MODE)", "pass"),
    Removal("modes under any umask, of a directory", _PORT, "os.chmod(name, DIR_MODE, dir_fd=dir_fd)", "pass"),
    Removal("the lock", _PORT, "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"),
    Removal("taking the lock", _LOCK, "fs.lock(self._fd)", "pass"),
    Removal(
        "taking the lock to write",
        _LOCAL,
        "if self._take_lock(root_fd, dir_fd):\n                        return\n",
        "return\n",
    ),
    Removal(
        "taking the lock again",
        _LOCAL,
        "if self._take_lock(root_fd, dir_fd):\n                        return self._begin_writing(again=True)",
        "return True",
    ),
    Removal("parts of a name that lead up", _BASE, 'part in {"", ".", ".."} or ', ""),
    Removal("NUL in a name", _BASE, '"\\0" in part or ', ""),
    Removal("backslashes in a name", _BASE, '"\\\\" in part or ', ""),
    Removal("names that are too long", _BASE, " or not _fits(part)", ""),
    Removal(
        "names, in commit",
        _LOCAL,
        "paths = [(check_name(file.name), file) for file in files]",
        'paths = [(tuple(file.name.split("/")), file) for file in files]',
    ),
    Removal("names, in replace", _LOCAL, "parts = check_name(name)", 'parts = tuple(name.split("/"))'),
    Removal("names, in append", _LOCAL, "*above, last = check_name(name)", '*above, last = name.split("/")'),
    Removal(
        "names, in delete",
        _LOCAL,
        "paths = [check_name(name) for name in names]",
        'paths = [tuple(name.split("/")) for name in names]',
    ),
    Removal("names, in read", _LOCAL, "*directories, last = check_name(name)", '*directories, last = name.split("/")'),
    Removal(
        "a session id that is a path",
        _LOCAL,
        "self._session_id = check_session_name(session_id)",
        "self._session_id = session_id",
    ),
    Removal("a session id that is a path, in any store", _BASE, "if len(check_name(session_id)) != 1:", "if False:"),
    Removal(
        "a session that is looked for by a path",
        _LOCAL,
        "return len(check_name(session_id)) == 1 and _is_session(fs, root_fd, session_id)",
        "return _is_session(fs, root_fd, session_id)",
    ),
    Removal("a session id's characters", _LAYOUT, " or not _is_safe(given):", ":"),
    Removal("a plain name that is a path", "tools/raw_messages.py", "parts = check_name(raw)", "parts = (raw,)"),
    Removal(
        "an id's characters",
        _LAYOUT,
        "    if _is_safe(raw):\n        return raw\n",
        "    if raw:\n        return raw\n",
    ),
    Removal("an id's leading dots", _LAYOUT, '.lstrip(".-")', ""),
    Removal("an id that Windows reserves", _LAYOUT, " and not _is_reserved(raw)", ""),
    Removal("an id that ends in a dot", _LAYOUT, ' and raw[-1] != "."', ""),
    Removal("a prefix that Windows reserves", _LAYOUT, "if _is_reserved(prefix):", "if False:"),
    Removal(
        "ids that were given out",
        _LAYOUT,
        "        if self.is_free(name):\n            return name\n",
        "        return name\n",
    ),
    Removal(
        "ids that differ in case",
        _LAYOUT,
        "        key = item_id.casefold()\n        for layer",
        "        key = item_id\n        for layer",
    ),
    Removal("whose a session's directory is", _LOCAL, "if status.owner != self._fs.user():", "if False:"),
    Removal("who may write to a session's directory", _LOCAL, "if status.mode & OTHERS_MAY_WRITE:", "if False:"),
    Removal("who may read a session's directory", _LOCAL, "self._fs.set_dir_mode(dir_fd)", "pass"),
    Removal("a session's directory as a whole", _LOCAL, "self._check_dir(dir_fd, write=write)", "pass"),
    Removal("a session id that differs in case", _LOCAL, "self._check_spelling(root_fd, dir_fd)", "pass"),
    Removal(
        "a path as a session's id",
        _LOCAL,
        "return len(check_name(session_id)) == 1 and _is_session(",
        "return _is_session(",
    ),
    Removal("a hidden directory as a session", _LOCAL, "    if is_hidden(name):\n        return False\n", ""),
    Removal(
        "a directory that is no session",
        _LOCAL,
        "return LOCK_NAME in names and has_contents",
        "return True",
    ),
    Removal("whose a file or directory is", _DIRS, "if status.owner != fs.user():", "if False:"),
    Removal("whose a directory in a session is", _DIRS, "check_owner(self._fs, where, status)", "pass"),
    Removal("whose a content is", _DIRS, "    check_owner(fs, name, status)", "    pass"),
    Removal("whose the journal is", _LOG, "check_owner(fs, LOG_NAME, status)", "pass"),
    Removal("a second name", _DIRS, "if status.links > 1:", "if False:"),
    Removal("a second name of the journal", _LOG, "check_only_name(LOG_NAME, status)", "pass"),
    Removal("a second name of the lock", _LOCK, "check_only_name(LOCK_NAME, status)", "pass"),
    Removal("what the lock is", _LOCK, "check_file(fs, LOCK_NAME, status)", "pass"),
    Removal(
        "a lock that its holder died with",
        _LOCK,
        "self.settled = fs.stat_handle(self._fd).size == 0",
        "self.settled = True",
    ),
    Removal(
        "the name of who begins to write", _LOCK, 'write_all(self._fs, self._fd, [b"process %d\\n" % process])', "pass"
    ),
    Removal(
        "a session that was moved before its lock was taken",
        _LOCAL,
        "return self._fs.stat(root_fd, self._session_id).identity == self._fs.stat_handle(dir_fd).identity",
        "return True",
    ),
    Removal("what a growing file is", _LOCAL, "check_file(self._fs, name, self._fs.stat_handle(fd))", "pass"),
    Removal("what a content is", _LOCAL, "            check_file(self._fs, name, status)", "            pass"),
    Removal("a file's kind", _DIRS, "if status.kind is not FileKind.FILE:", "if False:"),
    Removal("the journal's kind", _LOG, "if kind is not FileKind.FILE:", "if False:"),
    Removal("a journal that is another file now", _LOG, "status.identity != self._identity or ", ""),
    Removal("a journal that is shorter now", _LOG, " or status.size < self.length", ""),
    Removal("a journal that was moved or removed", _LOG, "self._check(self._fs.stat(self._dir_fd, LOG_NAME))", "pass"),
    Removal(
        "a journal that another one took over from",
        "session/journal_writer.py",
        "            self.check_open()\n",
        "            pass\n",
    ),
    Removal(
        "a growing file of a session that was closed",
        "session/content/growing.py",
        "self._check_open()\n        if self._failed",
        "pass\n        if self._failed",
    ),
    Removal(
        "a growing file that ends after its session",
        "session/content/growing.py",
        "self._check_open()\n        await self._store",
        "pass\n        await self._store",
    ),
    Removal("the journal before it is repaired", _LOG, "self._check(self._fs.stat_handle(fd))", "pass"),
    Removal(
        "a journal that somebody else wrote to", _LOG, "if self._fs.stat_handle(fd).size != self.length:", "if False:"
    ),
    Removal(
        "a directory that was moved away", _DIRS, "elif not self._is_there(parent, parts[-1], entry):", "elif False:"
    ),
    Removal(
        "a forked child that closes",
        _LOCAL,
        "        if self._process != self._fs.process():\n            return",
        "        if False:\n            return",
    ),
    Removal(
        "a forked child that works on",
        _LOCAL,
        "        if self._process != self._fs.process():\n            raise",
        "        if False:\n            raise",
    ),
    Removal(
        "a forked child that writes",
        _LOCAL,
        "def _writing(self) -> Iterator[LogFile]:\n        self._check_process()",
        "def _writing(self) -> Iterator[LogFile]:",
    ),
    Removal(
        "a forked child that releases the lock",
        _LOCAL,
        "def release(self) -> None:\n        self._check_process()",
        "def release(self) -> None:",
    ),
    Removal(
        "a forked child that takes the lock",
        _LOCAL,
        "def acquire(self) -> bool:\n        self._check_process()",
        "def acquire(self) -> bool:",
    ),
    Removal(
        "a forked child that reads",
        _LOCAL,
        "self._check_process()\n        with self._handle_lock:",
        "with self._handle_lock:",
    ),
    Removal(
        "a closed session",
        _LOCAL,
        'raise SessionClosed(f"session {self._session_id} is not open")',
        "return -1",
    ),
    Removal(
        "a session for reading that is written",
        _LOCAL,
        "if self._log is None:\n                raise",
        "if False:\n                raise",
    ),
    Removal(
        "a name that is taken",
        _LOCAL,
        '                if isinstance(error, FileExistsError):\n                    raise NameTaken("/".join(parts)) from None\n                raise\n',  # noqa: E501
        "                return\n",
    ),
    Removal("hidden names in a listing", _LOCAL, "if is_hidden(name) or path == LOG_NAME:", "if path == LOG_NAME:"),
    Removal("the journal in a listing", _LOCAL, "if is_hidden(name) or path == LOG_NAME:", "if is_hidden(name):"),
    Removal(
        "a file outside of sessions that is another",
        _FILES,
        "if status.kind is not FileKind.FILE or status.size != len(data):",
        "if False:",
    ),
    Removal(
        "bytes of a file outside of sessions",
        _FILES,
        "if data[position : position + len(piece)] != piece:",
        "if False:",
    ),
    Removal(
        "an envelope that is another item's",
        "session/discovery.py",
        "if PurePosixPath(_plain(name)).name != item_id + ENVELOPE.extension:",
        "if False:",
    ),
    Removal(
        "a found file that the journal contradicts",
        "session/discovery.py",
        "entry is not None and await _fits(store, state, entry)",
        "entry is not None",
    ),
    Removal(
        "a found file's id that is stored", "session/discovery.py", "if entry.item_id in state.stored:", "if False:"
    ),
    Removal(
        "a found file's content against the context",
        "session/discovery.py",
        "return await ContentReader(store, entry).load() == item.message.content",
        "return True",
    ),
    Removal("parts of an archive under another name", _ARCHIVE, 'if head["name"] != name:', "if False:"),
    Removal("an archive that is too large", _ARCHIVE, "if size_bytes > self._max_bytes:", "if False:"),
    Removal("an archive of too many files", _ARCHIVE, "if self.files > self._max_files:", "if False:"),
    Removal(
        "an archive that is no file", _ARCHIVE, "if not stat.S_ISREG(os.fstat(plain.fileno()).st_mode):", "if False:"
    ),
    Removal("a frame that unfolds to too much", _COMPRESSION, "if len(content) > limit:", "if False:"),
    Removal(
        "contents that unfold to too much",
        _CONTENT,
        "if max_bytes is not None and blocks.size_bytes > max_bytes:",
        "if False:",
    ),
    Removal(
        "names in an archive, one by one", _TRANSFER, "parts = check_name(entry.name)", 'parts = entry.name.split("/")'
    ),
    Removal("hidden names in an archive", _TRANSFER, "is_hidden(entry.name) or ", ""),
    Removal("names in an archive that are deep", _TRANSFER, "len(parts) > MAX_DEPTH or ", ""),
    Removal("names in an archive that are the session's own", _TRANSFER, " or name in {LOG_NAME, INDEX_NAME}", ""),
    Removal("files in an archive that are one", _TRANSFER, "if name in seen:", "if False:"),
    Removal("files in an archive in each other's way", _TRANSFER, "    if clash:", "    if False:"),
    Removal(
        "the session id of a file system",
        "session/filesystem.py",
        "self._session_id = check_session_id(session_id)",
        "self._session_id = session_id",
    ),
    Removal(
        "whose the session of open files is",
        "session/filesystem.py",
        "check_owner(self._session_id, self._state, owner)",
        "pass",
    ),
    Removal(
        "the session id of an export",
        _TRANSFER,
        "stores.store(check_session_id(session_id))",
        "stores.store(session_id)",
    ),
    Removal("the session id in an archive", _TRANSFER, "check_session_id(source.session_id)", "source.session_id"),
    Removal("the session id of an import", _TRANSFER, "else check_session_id(session_id)", "else session_id"),
    Removal("names in an archive", _TRANSFER, "_check_names(stored)\n", "pass\n"),
)

CLEANUP = (
    Removal("a session's name in a store", _BASE, "if len(check_name(session_id)) != 1:", "if False:"),
    Removal(
        "the session id of a fork", "session/timeline/fork.py", "target = check_session_id(new_id)", "target = new_id"
    ),
    Removal(
        "the session id that is forked",
        "session/timeline/fork.py",
        "stores.store(check_session_id(session_id))",
        "stores.store(session_id)",
    ),
    Removal("what a fork knows of what was removed since", "session/timeline/fork.py", "*rest, *later]", "*rest]"),
    Removal(
        "the tombstones of what is erased",
        _ERASING,
        "    if records:\n        await fs.writer",
        "    if False:\n        await fs.writer",
    ),
    Removal(
        "the files of what is erased",
        _ERASING,
        "        gone += (item.name, index_name(item.name))\n",
        "        pass\n",
    ),
    Removal("archives without what is erased", _ERASING, "await store.replace(file.name, file)", "pass"),
    Removal(
        "the journal without what is erased",
        _ERASING,
        "    if new != log or store.is_shared:",
        "    if False:",
    ),
    Removal(
        "what is needed by a placeholder",
        "session/cleanup/live.py",
        "        if stored.item_id in kept:\n",
        "        if False:\n",
    ),
    Removal(
        "the session that an agent opens, in a quota", "session/cleanup/sessions.py", "{*written, *running}", "written"
    ),
    Removal(
        "files that are counted already",
        "session/cleanup/usage.py",
        "            if file in seen:",
        "            if False:",
    ),
)

EQUIVALENT = {
    "links in a new file's place": "O_EXCL alone fails on a link too; the table has both left out",
    "pipes in the journal's place": "on Linux a pipe that is opened for reading and writing never blocks",
    "links to a directory where directories are listed": "links are told apart before that",
    "parts of an archive that are there twice": "they are refused as parts under another name, less clearly",
    "macOS's sync where F_FULLFSYNC is refused": "only macOS runs it",
}
"""Guards that make no difference here when they alone are missing, with the reason; they are not tried."""

REMOVALS = {
    **{f"sync: {entry.name}": entry for entry in SYNCS},
    **{f"checksum: {entry.name}": entry for entry in CHECKSUMS},
    **{f"containment: {entry.name}": entry for entry in CONTAINMENT},
    **{f"clean-up: {entry.name}": entry for entry in CLEANUP},
}


def removals(source: Callable[[str], str]) -> dict[str, Mutant]:
    """Return the mutants without a guard, by name; ``source`` gives a module's text. Raises LookupError."""
    return {
        name: removal(entry.module, source(entry.module), entry.before, entry.after) for name, entry in REMOVALS.items()
    }
