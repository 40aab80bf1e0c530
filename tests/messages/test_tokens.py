"""Token counts: exact, bounded, never a download, never a panic."""

import base64
import hashlib
import json
import lzma
import re
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import regex
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from ctxfs.errors import ConfigError, CtxfsError
from ctxfs.messages import CharsCounter, O200kCounter, TokenCounter, load_counter, tokens
from ctxfs.messages.messages import encodable
from ctxfs.messages.tokens import (
    CHUNK_CHARS,
    IMAGE_MAX_TOKENS,
    PDF_PAGE_TOKENS,
    chunks,
    count_content,
    default_counter,
    exceeds,
    image_tokens,
    tiktoken_counter,
    toktok_counter,
)
from ctxfs.text.steps import Abandoned, Waiting
from images import gif, jpeg, png, webp, webp_extended, webp_lossless, webp_lossy

TIKTOKEN_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
TIKTOKEN_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"

# Pieces on which the pre-tokenizer's rules meet: letters, contractions, numbers, newlines, every kind of space, marks.
PIECES = (
    *("a", "Zb", "'s", "'LL", "'ſ", "’", "1", "234", "_", "-", ".", ",", '{"', '":', "/", "//", "\n/", "é", "e\u0301"),
    *("\n", "\r\n", "\r", " ", "  ", "\t", "\x0b", "\x1c", "\x85", "\xa0", "\u2028", "\u3000", "\u200b", "日本", "，"),
    *("。", "か", "\u3099", "ー", "가", "々", "😀", "🧑‍🔬", "\x00", "<|endoftext|>", "ǅ", "ª"),
)
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=25).map("".join)


@pytest.fixture(scope="module")
def counters() -> list[O200kCounter]:
    return [counter for counter in (tiktoken_counter(), toktok_counter()) if counter is not None]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tiktoken.Encoding:
    """Return tiktoken's own o200k_base, from a cache that holds our vocabulary: tiktoken checks the hash by itself."""
    ranks = tokens.unpack_vocabulary(tokens.vocabulary_file())
    original = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())
    assert hashlib.sha256(original).hexdigest() == TIKTOKEN_SHA256
    cache = tmp_path_factory.mktemp("tiktoken")
    (cache / hashlib.sha1(TIKTOKEN_URL.encode()).hexdigest()).write_bytes(original)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TIKTOKEN_CACHE_DIR", str(cache))
        definition = openai_public.o200k_base()
    assert definition["pat_str"] == tokens.PATTERN
    return tiktoken.Encoding(**definition)


def count(encoding: tiktoken.Encoding, text: str) -> int:
    return len(encoding.encode_ordinary(text))


@given(text=texts)
@example(text="  I'ſ\u3000")
def test_counts_are_those_of_tiktoken(text: str, reference: tiktoken.Encoding, counters: list[O200kCounter]) -> None:
    expected = count(reference, text)
    assert [counter.count(text) for counter in counters] == [expected] * len(counters)


def test_text_is_cut_only_where_the_pre_tokenizer_splits() -> None:
    split, boundary = regex.compile(tokens.PATTERN), re.compile(tokens.BOUNDARY)
    cuts = 0
    for text in map("".join, product(PIECES, repeat=3)):
        whole = split.findall(text)
        for cut in boundary.finditer(text):
            assert split.findall(text[: cut.start()]) + split.findall(text[cut.start() :]) == whole, (text, cut)
            cuts += 1
    assert cuts > 10_000


ORDINARY = {
    "prose": "It's the agents' log: 3,445 results, and don't ask why.\n\n" * 2_000,
    "indented": "    if x:\n        return {'a': [1, 2, 3]}  // no\n" * 2_000,
    "minified JSON": json.dumps([{"id": i, "name": f"user {i}", "tags": ["a", "b"]} for i in range(3_000)]),
    "no spaces": ",".join(f"k{i}:{i * 7919}" for i in range(9_000)),
    "CRLF": "one,two\r\n\r\n\r\n  three\r\n" * 5_000,
    "Chinese": "上下文卸载功能，内容写入文件。不会丢失任何字节！" * 3_000,
    "logs": "".join(f"2024-01-01T00:{i % 60:02}:07Z ERROR [w-{i}] it's 'down'\n" for i in range(2_000)),
}


@pytest.mark.parametrize("kind", ORDINARY)
def test_long_ordinary_text_is_exact(kind: str, reference: tiktoken.Encoding, counters: list[O200kCounter]) -> None:
    text = ORDINARY[kind]
    assert len(text) > 3 * CHUNK_CHARS
    assert [counter.count(text) for counter in counters] == [count(reference, text)] * len(counters)


@pytest.mark.not_measured
def test_recorded_sessions_are_exact(
    traces: list[Path], reference: tiktoken.Encoding, counters: list[O200kCounter]
) -> None:
    for path in traces[:6]:
        text = path.read_text()[:400_000]
        assert [counter.count(text) for counter in counters] == [count(reference, text)] * len(counters)


RUNS = {"spaces": " ", "newlines": "\n", "letters": "a", "ideographs": "日", "emoji": "😀", "equals": "=", "nul": "\0"}


@pytest.mark.not_measured
@pytest.mark.parametrize("kind", RUNS)
def test_an_unbroken_run_is_counted_without_panic(kind: str, counters: list[O200kCounter]) -> None:
    run = RUNS[kind] * 1_000_000
    assert len(set(map(len, chunks(run)))) <= 2, "only the last chunk is shorter"
    first, *others = [counter.count(run) for counter in counters]
    assert first >= len(run.encode()) / tokens.MAX_TOKEN_BYTES
    assert others == [first] * len(others)


@given(st.text(st.characters(codec=None, categories=("Cs", "Ll", "Zs")), max_size=50))
def test_lone_surrogates_count_as_replacement_characters(text: str) -> None:
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for counter in (tiktoken_counter(), default_counter()):
        assert counter.count(text) == counter.count(clean)


@given(text=texts, repeat=st.integers(1, 3_000))
def test_chunks_are_the_text_and_fit_64_kb(text: str, repeat: int) -> None:
    pieces = list(chunks(text * repeat))
    assert "".join(pieces) == encodable(text * repeat) or any("\ud800" <= c <= "\udfff" for c in text)
    assert all(len(piece.encode()) <= 65_536 for piece in pieces)


@pytest.mark.parametrize(("limit", "is_more"), [(100, True), (249, True), (250, False)])
def test_a_text_whose_length_does_not_tell_is_counted_until_it_has_more(limit: int, is_more: bool) -> None:
    assert exceeds(CharsCounter(), "a" * 1_000, limit) is is_more


@pytest.mark.parametrize("counter", [default_counter(), CharsCounter()], ids=["o200k", "chars"])
@given(text=texts, repeat=st.integers(0, 2_000), limit=st.integers(0, 6_000))
def test_exceeds_agrees_with_count(counter: TokenCounter, text: str, repeat: int, limit: int) -> None:
    assert exceeds(counter, text * repeat, limit) == (sum(map(counter.count, chunks(text * repeat))) > limit)


class CountingCounter:
    """Notes how much it was asked to count."""

    def __init__(self) -> None:
        self.chars = 0

    def count(self, text: str) -> int:
        self.chars += len(text)
        return default_counter().count(text)


def test_exceeds_stops_early() -> None:
    log = ORDINARY["logs"] * 10
    counter = CountingCounter()
    assert exceeds(counter, log, 20_000)
    assert counter.chars < len(log) / 5
    counter = CountingCounter()
    assert exceeds(counter, log, 100)
    assert not exceeds(counter, log, 4 * len(log))
    assert counter.chars == 0, "the length alone tells"


@pytest.mark.not_measured
def test_any_thread_may_count(counters: list[O200kCounter]) -> None:
    texts = [*ORDINARY.values()] * 2
    for counter in counters:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(counter.count, texts)) == list(map(counter.count, texts))


def test_special_tokens_are_plain_text() -> None:
    assert default_counter().count("<|endoftext|>") > 1


def test_chars_counter_rounds_up() -> None:
    assert [CharsCounter().count(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]


def test_a_damaged_vocabulary_is_refused() -> None:
    packed = bytearray(lzma.decompress(tokens.vocabulary_file()))
    packed[-1] ^= 1
    with pytest.raises(CtxfsError, match="reinstall ctxfs"):
        tokens.unpack_vocabulary(lzma.compress(bytes(packed), preset=0))


def test_without_the_fast_extra_tiktoken_counts() -> None:
    with pytest.MonkeyPatch.context() as modules:
        modules.setitem(sys.modules, "toktok", None)  # what "not installed" is to an import
        assert toktok_counter() is None
    assert tiktoken_counter().engine == "tiktoken"


def test_the_fast_extra_is_picked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("toktok")
    monkeypatch.setattr(tokens, "_loaded", [])  # nobody asked for a counter yet
    assert default_counter().engine == "toktok-rs"


def test_the_long_s_after_an_apostrophe_counts_the_same_everywhere() -> None:
    pytest.importorskip("toktok")
    fast = toktok_counter()
    assert fast is not None
    assert fast.count("it'\u017f") == tiktoken_counter().count("it'\u017f")


@pytest.mark.anyio
async def test_load_counter_says_how_long_it_took() -> None:
    counter = await load_counter()
    assert counter is await load_counter() is default_counter()
    assert counter.load_s > 0


# Content blocks


def image(data: bytes | str) -> tuple[dict[str, object], ...]:
    encoded = data if isinstance(data, str) else base64.b64encode(data).decode()
    return ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded}},)


@pytest.mark.parametrize("encode", [png, gif, jpeg, webp_extended, webp_lossless, webp_lossy])
def test_an_image_costs_by_its_size(encode: object) -> None:
    assert callable(encode)
    assert count_content(CharsCounter(), image(encode(1000, 600))) == 800
    assert count_content(CharsCounter(), image(encode(4000, 8))) == image_tokens(4000, 8) == 7


UNKNOWN_IMAGES: dict[str, bytes | str] = {
    "no base64": "%%%",
    "not ASCII": "é",
    "empty": b"",
    "cut PNG": png(9, 9)[:20],
    "unknown WebP": webp(b"VP9 ", bytes(20)),
    "JPEG without a frame": b"\xff\xd8\xff\xd9" + bytes(20),
    "other format": b"BM" + bytes(99),
}


@pytest.mark.parametrize("kind", UNKNOWN_IMAGES)
def test_an_image_of_unknown_size_costs_the_most(kind: str) -> None:
    assert count_content(CharsCounter(), image(UNKNOWN_IMAGES[kind])) == IMAGE_MAX_TOKENS


def test_images_by_reference_cost_the_most() -> None:
    block = {"type": "image", "source": {"type": "url", "url": "https://example.com/" + "x" * 9_000}}
    assert count_content(CharsCounter(), (block,)) == IMAGE_MAX_TOKENS


@given(st.integers(0, 70_000), st.integers(0, 70_000))
def test_image_tokens_are_bounded(width: int, height: int) -> None:
    assert 1 <= image_tokens(width, height) <= IMAGE_MAX_TOKENS


def test_image_tokens_follow_the_providers_table() -> None:
    sizes = [(200, 200), (1000, 1000), (1092, 1092), (784, 1568), (3840, 2160)]
    assert [image_tokens(*size) for size in sizes] == [53, 1333, 1590, 1600, 1600]


PAGE = b"<</Type /Page /Parent 1 0 R>>"
PDFS = [
    ("plain", b"%PDF-1.4 <</Type/Pages /Count 3>>" + PAGE * 3, 3),
    ("object stream", b"<</Type /ObjStm /N 2>>\nstream\r\n" + zlib.compress(PAGE * 2) + b"\nendstream", 2),
    ("encrypted", b"<</Type /ObjStm /N 2>>stream\n" + bytes(120_000), 3),
    ("no stream", b"<</Type /ObjStm>>" + bytes(1_000) + b"stream\n" + zlib.compress(PAGE), 1),
    ("bombs", (b"<</Type /ObjStm>>stream\n" + zlib.compress(PAGE + bytes(1 << 20))) * 99, 32),
    ("empty", b"", 1),
]


@pytest.mark.parametrize(("kind", "data", "pages"), PDFS)
def test_a_pdf_costs_by_the_page(kind: str, data: bytes, pages: int) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(data).decode()}
    assert count_content(CharsCounter(), ({"type": "document", "source": source},)) == pages * PDF_PAGE_TOKENS


def test_base64_may_have_line_breaks() -> None:
    data = base64.encodebytes(PAGE * 2 + bytes(4_000_000)).decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    assert count_content(CharsCounter(), ({"type": "document", "source": source},)) == 2 * PDF_PAGE_TOKENS


@pytest.mark.parametrize("chars", [0, -3, "4"])
def test_a_token_of_an_estimate_has_a_character_at_least(chars: Any) -> None:
    with pytest.raises(ConfigError, match="chars_per_token is"):
        CharsCounter(chars)


def test_text_documents_cost_their_text() -> None:
    counter = CharsCounter(chars_per_token=1)
    text = {"type": "text", "text": "abcd"}
    documents = [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "abcd"}},
        {"type": "document", "source": {"type": "content", "content": "abcd"}},
        {"type": "document", "source": {"type": "content", "content": [text]}},
    ]
    assert [count_content(counter, (document,)) for document in documents] == [4, 4, 4]
    about = {**documents[0], "title": "ti", "context": "c", "citations": None}
    assert count_content(counter, (about,)) == 7
    by_id = {"type": "document", "source": {"type": "file", "file_id": "x"}}
    assert count_content(counter, (by_id,)) == PDF_PAGE_TOKENS


def test_other_blocks_cost_what_the_model_reads() -> None:
    counter = CharsCounter(chars_per_token=1)
    assert count_content(counter, "abc") == 3
    assert count_content(counter, ()) == 0
    assert count_content(counter, ({"type": "text", "text": "abc"}, {"type": "text", "text": "de"})) == 5
    assert count_content(counter, ({"type": "thinking", "thinking": "abc", "signature": "x" * 99},)) == 3
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "é"}}
    assert count_content(counter, (call,)) == len('Read{"path":"é"}')
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "abc"}]}
    assert count_content(counter, (result,)) == 3
    assert count_content(counter, ({**result, "content": "abcd"},)) == 4
    odd = {"type": "later", "x": ["\ud800", 1.5, None]}
    assert count_content(default_counter(), (odd,)) > 0
    assert count_content(counter, ({"type": "text"},)) == len('{"type":"text"}')


def test_an_image_inside_a_tool_result_is_no_text() -> None:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": list(image(png(750, 100) + bytes(300_000)))}
    assert count_content(CharsCounter(), (block,)) == 100


def test_counting_ends_when_nobody_waits_any_more() -> None:
    waiting, counted = Waiting(), list[int]()

    def count_chunk(chunk: str) -> int:
        counted.append(len(chunk))
        waiting.end()
        return 1

    with pytest.raises(Abandoned):
        waiting.run(lambda: O200kCounter("test", 0.0, count_chunk).count("a b " * 100_000))
    assert len(counted) == 1
