"""What a placeholder says about its content: what is worth naming, and never more than the bound allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.context.entry import EntryRules, Known, build_entry
from ctxfs.eviction.placeholder.identifiers import entries_of, mentions, worth_naming
from ctxfs.eviction.placeholder.text import render
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages.incoming import Incoming
from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage
from ctxfs.messages.names import NameAllocator
from ctxfs.messages.tokens import default_counter
from ctxfs.tools import Materialize, Materializer

COUNTER = default_counter()


@pytest.mark.parametrize(
    "name",
    [
        "src/ctxfs/context/fs.py",
        "tests/test_mod0.py::test_case_17",
        "/tmp/pytest-of-user/pytest-12/a8f3b2c1/file.py",
        "https://example.com/a/b",
        "IdentifierIndex",
        "getElementById",
        "parseHTML5Document",
        "ConnectionResetError",
        "utf8mb4_general_ci",
        "sha256sum_file",
        "x86_64-linux-gnu",
        "DEPRECATED_API_VERSION",
    ],
)
def test_paths_symbols_and_errors_are_worth_naming(name: str) -> None:
    assert worth_naming(name)


@pytest.mark.parametrize(
    "name",
    [
        "2026-11-22T12:00:00",
        "2026-11-22T12:00:00.123Z",
        "22/Nov/2026:12:03:04",
        "12:03:04.123456",
        "0.16163898821796618",
        "10.0.123.45:8080",
        "550e8400-e29b-41d4-a716-446655440000",
        "d3e5adaf9c01a2b4",
        "toolu_01A2b3C4d5E6",
        "call_a8f3b2c1d9",
        "QmFzZVNpeHR5Rm91",
        "session_20260101_000000_abcdef",
        "--------------",
        "::::////::::",
    ],
)
def test_times_numbers_and_random_ids_are_not(name: str) -> None:
    assert not worth_naming(name)


def test_names_that_differ_in_numbers_only_are_one_entry() -> None:
    names = [f"tests/mod_{n % 2}.py::test_case_{n:03}" for n in range(400)]
    assert entries_of(names, limit=10) == ("tests/mod_0…1.py::test_case_000…399",)
    assert entries_of(["value_1_of_9", "value_7_of_9", "value_3_of_9"], limit=10) == ("value_1…7_of_9",)
    assert entries_of(["src/module_1.py", "src/module_2.py"], limit=10) == ("src/module_1.py", "src/module_2.py")


def test_short_names_come_first_and_equally_long_ones_in_their_order() -> None:
    names = ["a/very/long/path/to/something.py", "some_symbol_b", "some_symbol_a"]
    assert entries_of(names, limit=9) == ("some_symbol_b", "some_symbol_a", "a/very/long/path/to/something.py")
    assert entries_of(names, limit=1) == ("some_symbol_b",)
    assert entries_of(names, limit=0) == ()


def test_as_many_entries_as_the_budget_allows() -> None:
    entries = [f"symbol_{word}_name" for word in ("alpha", "beta", "gamma", "delta")]
    whole = "Mentions: " + " ".join(entries)
    size = COUNTER.count(whole)
    assert mentions(entries, budget_tokens=size, counter=COUNTER) == whole
    assert mentions(entries, budget_tokens=size - 1, counter=COUNTER) == "Mentions: " + " ".join(entries[:3])
    assert mentions(entries, budget_tokens=1, counter=COUNTER) == mentions((), budget_tokens=9, counter=COUNTER) == ""


LINES = st.sampled_from(
    [
        "10.0.{n}.7 - - [22/Nov/2026:12:{n}:01 +0000] GET /v1/items/{n} HTTP/1.1 200 9{n}4",
        "2026-11-22T12:00:{n}.123Z INFO req=a{n}f3b2c1d9e8{n} took 0.16{n}3898821s",
        "tests/test_mod.py::test_case_{n} PASSED",
        "    result_{n} = compute_value(self, {n})  # step",
        "ERROR could not open configuration_file_{n}.toml",
        "The revenue of region {n} was {n}37 euros, up {n} percent.",
        "schöne Grüße aus Zürich, {n} 你好世界",
        "",
    ]
)
CONTENTS = st.builds(
    lambda lines, times: "".join(f"{line.format(n=n)}\n" for n in range(times) for line in lines),
    st.lists(LINES, min_size=1, max_size=5),
    st.integers(1, 80),
)


def digests(content: str, digest_tokens: int) -> list[str]:
    """The digest of every placeholder that this content can get, as a result or as a call's argument."""
    found = []
    for by_price, exact in ((False, ()), (True, ()), (True, ("Grep",))):
        rules = EntryRules(
            counter=COUNTER,
            base="/s",
            policy=OffloadPolicy(digest_tokens=digest_tokens),
            by_price=by_price,
            exact=frozenset(exact),
        )
        call = AssistantMessage(({"type": "tool_use", "id": "c", "name": "Write", "input": {"text": content}},))
        made = {}
        messages: list[Message] = [call, ToolMessage("c", "Grep", content)]
        for message in messages:
            made[type(message)] = build_entry(Incoming(message=message), Known(NameAllocator()), rules)
        result, reply = made[ToolMessage], made[AssistantMessage]
        placeholder = result.options.placeholder
        texts = ["" if placeholder is None else placeholder.write()[0]]
        texts += [str(trim.arguments["text"]) for trim in reply.options.trims]
        found += ["\n".join(text.split("\n")[3:]) for text in texts]
    return found


@given(content=CONTENTS, digest_tokens=st.sampled_from([0, 1, 20, 60, 200, 1_000]))
def test_no_digest_is_over_its_bound(content: str, digest_tokens: int) -> None:
    bound = min(digest_tokens, (COUNTER.count(content) + 10) // 5)  # an argument is counted with its quotes and its key
    assert max(COUNTER.count(digest) for digest in digests(content, digest_tokens)) <= bound


@given(content=CONTENTS, max_inline_chars=st.sampled_from([0, 500, 4_000]))
def test_the_passages_of_a_materialized_output_take_a_fifth_of_it(content: str, max_inline_chars: int) -> None:
    rules = EntryRules(
        counter=COUNTER,
        base="/s",
        policy=OffloadPolicy(digest_tokens=200),
        eager=Materializer(settings=Materialize(max_inline_chars=max_inline_chars)),
    )
    entry = build_entry(Incoming(message=ToolMessage("c", "Grep", content)), Known(NameAllocator()), rules)
    if entry.eager is None:
        return
    text = entry.eager.offload.placeholder
    passages = text.partition("\nFirst lines:\n")[2]
    assert COUNTER.count(passages) <= COUNTER.count(content) // 5
    short = entry.item.placeholder
    assert short is None or short == render(f"/s/{entry.item.name}")
