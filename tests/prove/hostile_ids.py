"""Ids that a model, a server or a user may send to break out of a directory, or to meet another id in one file."""

import random
import unicodedata
from collections.abc import Iterator

__all__ = ["CURATED", "folded", "generated"]

# What each is put around, before or after: an id that looks harmless.
PLAIN = "call_1"
CLIMBS: tuple[str, ...] = (
    "..",
    "../",
    "..\\",
    "../..",
    "..;/",
    ".../",
    "....//",
    "..%2f",
    "%2e%2e/",
    "%252e%252e%252f",
    "..%c0%af",
)
CLIMBS += ("..%5c", "..\u2215", "..\u2044", "..\uff0f", "\uff0e\uff0e/", "\u2024\u2024/", "..\x00/", "..\n/", ". ./")
TARGETS = ("etc/passwd", "journal.jsonl", "index.json", ".lock", "root/.ssh/id_rsa", "session_2/tool_result/x.json")
ROOTS: tuple[str, ...] = (
    "/",
    "//",
    "///",
    "\\",
    "\\\\server\\share\\",
    "C:\\",
    "C:",
    "c:/",
    "\\\\?\\C:\\",
    "\\\\.\\",
    "~/",
    "~root/",
)
ROOTS += ("file:///", "http://h/", "./", ".//", "$HOME/", "%TEMP%\\", "${HOME}/", "`id`/", "/proc/self/", "/dev/fd/")
RESERVED: tuple[str, ...] = (
    "con",
    "prn",
    "aux",
    "nul",
    "com1",
    "com9",
    "com0",
    "lpt1",
    "lpt9",
    "lpt0",
    "CONIN$",
    "CONOUT$",
    "clock$",
)
RESERVED += ("com\u00b9", "com\u00b2", "com\u00b3", "lpt\u00b9", "lpt\u00b2", "lpt\u00b3")
OURS: tuple[str, ...] = (
    ".",
    "..",
    "...",
    ".lock",
    ".LOCK",
    "journal.jsonl",
    "Journal.JSONL",
    "index.json",
    "INDEX.JSON",
    ".ctxfs-tmp-1-1",
)
OURS += (".ctxfs-import-0000000000000000", ".derived.sqlite", "artifacts", "artifacts/tool/x", "tool_result")
OURS += (
    "call_1.json",
    "call_1.json.idx",
    "call_1.idx",
    "call_1.txt",
    "call_1.json.foreign",
    "msg_001",
    "MSG_001",
    "msg_1",
)
CONTROLS = tuple(chr(n) for n in (*range(0x20), *range(0x7F, 0xA0)))
MARKS: tuple[str, ...] = (
    "\u202e",
    "\u202d",
    "\u2066",
    "\u2067",
    "\u2069",
    "\u200e",
    "\u200f",
    "\u061c",
    "\u200b",
    "\u200c",
    "\u200d",
)
MARKS += ("\u2060", "\ufeff", "\u00ad", "\u034f", "\u115f", "\u3164", "\ufe0f", "\U000e0041", "\U000e0101")
SPACES = (" ", "\u00a0", "\u1680", "\u2000", "\u2003", "\u2009", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000")
PUNCTUATION = (*"<>:\"|?*!#$%&'()+,;=@[]^`{}~", "..", "--", "-", "._", "=.", "@{", "\u2026", "\u00b7", "\uff1a")
SURROGATES = ("\ud800", "\udbff", "\udc00", "\udfff", "\ud800\ud800", "\udc80", "\udcff", "\udfff\ud800", "a\ud83d")
# Pairs that a file system which folds case or normalises takes for one name.
PAIRS = (
    *(("call_a", "CALL_A"), ("Read", "READ"), ("stra\u00dfe", "strasse"), ("stra\u00dfe", "STRASSE"), ("\u0131", "I")),
    *(("\u0130", "i\u0307"), ("\u212a", "K"), ("\u212a", "k"), ("\u017f", "s"), ("\u212b", "\u00c5"), ("\ufb01", "fi")),
    *(("\u00e9", "e\u0301"), ("\u00c9", "e\u0301"), ("\u01c4", "\u01c6"), ("\u01c5", "\u01c4"), ("\u03c3", "\u03c2")),
    *(
        ("\u1e9e", "\u00df"),
        ("\u2126", "\u03c9"),
        ("\uac00", "\u1100\u1161"),
        ("\u0390", "\u1fd3"),
        ("\u0149", "\u02bcn"),
    ),
    *(("\uff21", "A"), ("\u2460", "1"), ("\u00bd", "1/2"), ("\u2100", "a/c"), ("\u2105", "c/o"), ("\ufe52", ".")),
    *(("\u0958", "\u0915\u093c"), ("\u1e69", "s\u0323\u0307"), ("s\u0307\u0323", "\u1e69"), ("\u00b5", "\u03bc")),
    *(
        ("\u1c80", "\u0432"),
        ("\uab70", "\u13a0"),
        ("\U00010400", "\U00010428"),
        ("a.", "a"),
        ("a ", "a"),
        ("a~2", "a_2"),
    ),
    *(("A~1", "a"), ("LONGNA~1", "LongName"), ("call~1", "call_1"), ("x" * 120, "X" * 120), ("x" * 121, "x" * 120)),
)
SHELL: tuple[str, ...] = (
    "-rf",
    "--",
    "-",
    "--help",
    "$(id)",
    "`id`",
    "; rm -rf .",
    "| cat",
    "&& id",
    "\n\nid",
    "*",
    "?",
    "[a]",
    "{a,b}",
)
SHELL += (
    "%00",
    "%s%n",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "<script>",
    "'; DROP TABLE artifacts;--",
    "\x1b]0;t\x07",
    "\x1b[2J",
)
LENGTHS = (80, 81, 119, 120, 121, 200, 244, 245, 255, 256, 1024, 1500, 4096, 65536)


def _curated() -> Iterator[str]:
    yield from ("", PLAIN, "0", "None", "null", "true", "-1", "undefined", "NaN")
    yield from OURS
    for climb in CLIMBS:
        yield climb
        yield from (climb + target for target in TARGETS)
        yield from (f"{PLAIN}/{climb}{PLAIN}", f"{climb * 12}x")
    for root in ROOTS:
        yield from (root, root + PLAIN, f"{root}{TARGETS[0]}", f"{PLAIN}{root}")
    for name in RESERVED:
        yield from (name, name.upper(), f"{name}.txt", f"{name}.", f"{name} ", f"{name}.tar.gz", f"{name}:", f"_{name}")
    for mark in (*MARKS, *SPACES, *PUNCTUATION, *SURROGATES, *CONTROLS):
        yield from (mark, f"{PLAIN}{mark}", f"{mark}{PLAIN}", f"call{mark}_1")
    for dots in (".", "..", "...", ". ", " .", ".. .", "\u3002"):
        yield from (f"{PLAIN}{dots}", f"{dots}{PLAIN}")
    yield from (
        f"{PLAIN}{stream}" for stream in ("::$DATA", ":Zone.Identifier", ":$I30:$INDEX_ALLOCATION", "/..namedfork/rsrc")
    )
    yield from (name for pair in PAIRS for name in pair)
    yield from SHELL
    for letter in ("x", "X", "\u00e9", "\U0001f4a9", ".", "/", "../", "~", "\0"):
        yield from ((letter * length)[:length] for length in LENGTHS)


CURATED: tuple[str, ...] = tuple(dict.fromkeys(_curated()))
"""Every one of them once."""

_ALPHABETS = (
    "aAbB._-~1 ",
    "../\\:",
    "".join(MARKS + SPACES) + "aA",
    "".join(CONTROLS) + "aA/",
    "e\u0301\u00e9E\u00c9\u0130i\u0307\u0131I\u00dfsS\u017f\u212akK",
    "".join(chr(n) for n in range(0xD7F0, 0xE010)),
)


def generated(seed: int, count: int) -> Iterator[str]:
    """Yield ``count`` ids; the same seed gives the same ones. Many differ from one before by very little."""
    rng = random.Random(seed)
    last = PLAIN
    for _ in range(count):
        last = _next(rng, last)
        yield last


def _next(rng: random.Random, last: str) -> str:
    match rng.randrange(6):
        case 0:
            return "".join(rng.choices(rng.choice(_ALPHABETS), k=rng.randrange(1, 24)))
        case 1:
            return rng.choice(CURATED)[:300] + rng.choice(CURATED)[:300]
        case 2:
            return _variant(rng, last[:2_000])
        case 3:
            return "".join(chr(rng.randrange(0x110000)) for _ in range(rng.randrange(1, 12)))
        case 4:
            return _variant(rng, rng.choice(CURATED)[:2_000])
        case _:
            return f"toolu_{rng.randrange(10**6):06}{rng.choice(('', '.', 'A', '~2', '/'))}"


def _variant(rng: random.Random, text: str) -> str:
    form = rng.choice((str.upper, str.lower, str.swapcase, str.title, _nfc, _nfd, _nfkc, _suffixed, _doubled))
    return form(text)


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _suffixed(text: str) -> str:
    return f"{text}~2"


def _doubled(text: str) -> str:
    return f"{text}{text}"[:1_500]


def folded(name: str) -> str:
    """Return what a file system that ignores case and normalises compares names by."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())
