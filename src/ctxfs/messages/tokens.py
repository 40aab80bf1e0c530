"""Token counts: exact o200k_base counts of text, and the provider's rules for images and documents.

The vocabulary ships with ctxfs and nothing is ever downloaded. ``tiktoken`` counts; ``toktok-rs`` (the extra ``fast``)
gives the same counts several times faster and is picked up when it is installed.

Text is counted in chunks of at most ``CHUNK_CHARS`` code points (64 KB of UTF-8), cut where the pre-tokenizer splits in
any case, so that the sum is exactly the count of the whole text. Only a run of more than ``RUN_CHARS`` without such a
place (spaces, hexadecimal digits, a script without spaces and punctuation) may be cut in the middle, which changes the
count by about one token for each cut; tiktoken itself panics on much longer runs.
"""

import hashlib
import json
import lzma
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from itertools import accumulate, pairwise
from typing import Any, Final, Protocol

from anyio import to_thread

from ctxfs.errors import CtxfsError
from ctxfs.errors.checks import names_settings, require_int, require_method
from ctxfs.messages.messages import Block, Content, encodable
from ctxfs.text.media import document_pages, image_size
from ctxfs.text.steps import checkpoint

CHUNK_CHARS = 16_384

RUN_CHARS = 4_096

MAX_TOKEN_BYTES = 128
"""The longest token of o200k_base, in bytes."""

IMAGE_MAX_TOKENS = 1_600
"""What an image costs at most, and what one of unknown size is taken for."""

IMAGE_MAX_EDGE_PX = 1_568

PIXELS_PER_TOKEN = 750

PDF_PAGE_TOKENS = 2_400
"""A page of a PDF: its text, and the page as an image."""

VOCABULARY_SIZE = 199_998

VOCABULARY_SHA256 = "440741350e7cfa1c0f4869ce742d1b043550adbda5187adcac9e787edac6fba9"

PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""How o200k_base splits text before it merges bytes."""

# Places that no match of PATTERN spans, and that no match before them looks past:
BOUNDARY = "|".join(
    (
        r"(?<=\n)(?=[ \t]{0,99}[^\s/])",  # a line's start, unless whitespace or "/" could join the newline before it
        r"(?<=\S)(?= )",  # a space after anything else: only whitespace joins a space that follows it
        r"(?<=[A-Za-z0-9])(?=[!-&(-/:-@\[-`{-~])",  # punctuation after a letter or digit, except the apostrophe
        r"(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3])(?=[，。、；：！？])",  # the same for CJK
    )
)

# The last place in a chunk's last RUN_CHARS; looking further back would hold up other threads for milliseconds.
CHUNKS = re.compile(
    rf"(?s:.{{{CHUNK_CHARS - RUN_CHARS},{CHUNK_CHARS}}})(?:{BOUNDARY})|(?s:.{{1,{CHUNK_CHARS}}})",
)


class TokenCounter(Protocol):
    """Counts the tokens of a text; callable from any thread; never raises for a ``str``.

    A token is taken to hold between one byte and ``MAX_TOKEN_BYTES`` bytes of UTF-8 (see ``exceeds``).
    """

    def count(self, text: str) -> int:
        """Return the number of tokens in ``text``; 0 for the empty text."""


@dataclass(frozen=True, slots=True)
class O200kCounter:
    """Counts o200k_base tokens. ``engine`` names the package that counts; loading it took ``load_s`` seconds."""

    engine: str
    load_s: float
    count_chunk: Callable[[str], int]

    def count(self, text: str) -> int:
        """Return the number of tokens in ``text``, special tokens counted as the plain text they are.

        A lone surrogate counts as U+FFFD. Other threads can run between two chunks.
        """
        if len(text) <= CHUNK_CHARS:
            try:
                return self.count_chunk(text)
            except UnicodeEncodeError:
                return self.count_chunk(encodable(text))
        return sum(map(self.count_chunk, chunks(text)))


@names_settings()
@dataclass(frozen=True, slots=True)
class CharsCounter:
    """An estimate without a vocabulary: one token for every ``chars_per_token`` characters, rounded up.

    Raises ``ConfigError`` unless that is a whole number of 1 or more.
    """

    chars_per_token: int = 4

    def __post_init__(self) -> None:
        require_int("chars_per_token", self.chars_per_token, at_least=1)

    def count(self, text: str) -> int:
        """Return the estimate for ``text``."""
        return -(-len(text) // self.chars_per_token)


def chunks(text: str) -> Iterator[str]:
    """Cut ``text`` into pieces of at most ``CHUNK_CHARS`` that can be counted one by one."""
    if len(text) <= CHUNK_CHARS:
        yield encodable(text)
        return
    for match in CHUNKS.finditer(text):
        checkpoint()
        yield encodable(match.group())


def require_counter(counter: object) -> None:
    """Raise ``ConfigError`` unless ``counter`` is a ``TokenCounter`` or None."""
    require_method("counter", counter, "count", "a counter, such as CharsCounter(),")


def exceeds(counter: TokenCounter, text: str, limit: int) -> bool:
    """Whether ``text`` has more than ``limit`` tokens: by its length if that decides, else by counting up to it."""
    if 4 * len(text) <= limit:  # a character has at most four bytes, and a token at least one
        return False
    if len(text) > MAX_TOKEN_BYTES * limit:
        return True
    total = 0
    for chunk in chunks(text):
        total += counter.count(chunk)
        if total > limit:
            return True
    return False


def count_content(counter: TokenCounter, content: Content | list[Block]) -> int:
    """Return the tokens of ``content``: text by ``counter``, images and documents by the provider's rule.

    An image costs width × height / 750 after the provider has scaled it down (Anthropic, "Vision"), a PDF
    ``PDF_PAGE_TOKENS`` a page, a text document its text, a tool call its name and arguments, any other block its JSON.
    What is only referred to (URLs, file ids) counts as one image of the largest size, or one PDF page.
    """
    if isinstance(content, str):
        return counter.count(content)
    return sum([count_block(counter, block) for block in content])


def count_block(counter: TokenCounter, block: Block) -> int:
    """Return the tokens of one content block."""
    match block:
        case {"type": "text", "text": str(text)} | {"type": "thinking", "thinking": str(text)}:
            return counter.count(text)
        case {"type": "tool_use", "name": str(name), "input": arguments}:
            return counter.count(name) + count_json(counter, arguments)
        case {"type": "image", "source": dict(source)}:
            return _image_source_tokens(source)
        case {"type": "document", "source": dict(source)}:
            tokens = _document_source_tokens(counter, source)
            for key in ("title", "context"):
                if isinstance(block.get(key), str):
                    tokens += counter.count(block[key])
            return tokens
        case {"type": "tool_result", "content": str() | list() | tuple() as inner}:
            return count_content(counter, inner)
        case _:
            return count_json(counter, block)


json_counted: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
"""Returns the text by which a value is counted, compact JSON; ``json.dumps`` would make an encoder for each.

Not as ASCII only: that would count each foreign letter as an escape. The counter handles lone surrogates.
"""


def count_json(counter: TokenCounter, value: Any) -> int:
    """Return the tokens of ``value`` as JSON: the rule by which the arguments of a call are counted."""
    return counter.count(json_counted(value))


def image_tokens(width: int, height: int) -> int:
    """Return what an image of this size in pixels costs after the provider's down-scaling."""
    scale = min(1.0, IMAGE_MAX_EDGE_PX / max(width, height, 1))
    return max(1, min(IMAGE_MAX_TOKENS, round(width * scale * height * scale / PIXELS_PER_TOKEN)))


def _image_source_tokens(source: Block) -> int:
    data = source.get("data")
    if not isinstance(data, str):
        return IMAGE_MAX_TOKENS
    size = image_size(data)
    if size is None:
        return IMAGE_MAX_TOKENS
    return image_tokens(*size)


def _document_source_tokens(counter: TokenCounter, source: Block) -> int:
    match source:
        case {"type": "text", "data": str(text)}:
            return counter.count(text)
        case {"type": "content", "content": str() | list() | tuple() as inner}:
            return count_content(counter, inner)
        case {"type": "base64", "data": str(data)}:
            return PDF_PAGE_TOKENS * document_pages(data)
        case _:
            return PDF_PAGE_TOKENS


def vocabulary_file() -> bytes:
    """Return the shipped vocabulary as it is packed."""
    return files("ctxfs").joinpath("data/o200k_base.xz").read_bytes()


def unpack_vocabulary(xz: bytes) -> dict[bytes, int]:
    """Unpack and check a vocabulary: token to rank. Raises ``CtxfsError`` when it is not the one that ctxfs shipped."""
    packed = lzma.decompress(xz)
    digest = hashlib.sha256(packed).hexdigest()
    if digest != VOCABULARY_SHA256:
        raise CtxfsError(f"the vocabulary is damaged (SHA-256 {digest}): reinstall ctxfs")
    ends = accumulate(packed[:VOCABULARY_SIZE], initial=VOCABULARY_SIZE)
    return {packed[start:end]: rank for rank, (start, end) in enumerate(pairwise(ends))}


@cache
def tiktoken_counter() -> O200kCounter:
    """Return the counter on tiktoken and the shipped vocabulary, whatever else is installed; loaded once."""
    start = time.perf_counter()
    import tiktoken  # noqa: PLC0415 — 20 ms and a vocabulary that `import ctxfs` need not pay

    ranks = unpack_vocabulary(vocabulary_file())
    encoding = tiktoken.Encoding("o200k_base", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})

    def count_chunk(chunk: str) -> int:
        return len(encoding.encode_ordinary(chunk))

    return O200kCounter("tiktoken", time.perf_counter() - start, count_chunk)


def toktok_counter() -> O200kCounter | None:
    """Load the counter on toktok-rs; None when that is not installed."""
    start = time.perf_counter()
    try:
        import toktok  # noqa: PLC0415 — optional
    except ImportError:
        return None
    # batch_count sets up threads, which takes longer than counting a line: truncate counts too, in this thread.
    cut_and_count = partial(toktok.truncate, max_tokens=CHUNK_CHARS * 4, encoding="o200k_base")

    def count_chunk(chunk: str) -> int:
        if "'\u017f" in chunk:  # tiktoken takes the long s for an s after an apostrophe, and toktok does not
            return tiktoken_counter().count_chunk(chunk)
        return int(cut_and_count(chunk)[1])

    count_chunk("")  # the vocabulary is unpacked at the first call
    return O200kCounter("toktok-rs", time.perf_counter() - start, count_chunk)


_lock = threading.Lock()

_loaded: list[O200kCounter] = []


def default_counter() -> O200kCounter:
    """Return the fastest exact counter that is installed, loaded at the first call (a few hundred ms) and kept.

    Blocks while it loads: on an event loop, await ``load_counter`` before.
    """
    with _lock:
        if not _loaded:
            _loaded.append(toktok_counter() or tiktoken_counter())
        return _loaded[0]


async def load_counter() -> O200kCounter:
    """Return the default counter, loaded in a worker thread; its ``load_s`` says how long that took."""
    return _loaded[0] if _loaded else await to_thread.run_sync(default_counter)
