"""The replay by the bill: sizes, misses and prices as they were billed, baselines, and calls in two files."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ctxfs.errors import ConfigError, UnsupportedCacheTtl
from ctxfs.lab import PriceOptions, Report, replay_files
from ctxfs.lab.recordings.discover import default_places, recordings_in
from ctxfs.lab.recordings.recording import Message, ModelCall, Recording, Role
from ctxfs.lab.replay.answer import answer, check
from ctxfs.lab.replay.cost import Cost, Policy, replay_session
from ctxfs.lab.replay.policies import AsRecorded, Never, Window
from ctxfs.lab.replay.prediction import calibrated, predicted
from ctxfs.lab.replay.session import Session, prepare
from ctxfs.lab.replay.tariff import billed_calls, parse_rates, tariff_of
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import ANTHROPIC_RATES
from recording_samples import claude_code
from replay_samples import call, chars, result, text

pytestmark = pytest.mark.slow

TRACES = Path(os.environ.get("CTXFS_TRACES", "../shared/traces"))


def billed(message: Message, prompt: int, read: int, **more: Any) -> Message:
    """A reply whose prompt was billed with that many tokens, so many of them read from the cache."""
    usage = Usage(input_tokens=prompt - read, cache_read_input_tokens=read, output_tokens=10)
    return Message(message.role, message.blocks, None, ModelCall(usage=usage, **more))


def ready(messages: list[Message]) -> Session:
    (thread,) = calibrated([prepare(Recording(name="sample", messages=tuple(messages)), chars)])
    return thread


def replayed(session: Session, policy: Policy | None = None, **settings: Any) -> Cost:
    return replay_session(session, policy or Never(), ANTHROPIC_RATES, **settings)


def contexts(cost: Cost) -> list[int]:
    return [c.context_tokens for c in cost.calls]


def test_each_prompt_has_the_size_that_was_billed() -> None:
    session = ready([
        text(Role.USER, "x" * 100),
        billed(call(1, "Read", {"path": "a"}), 5_100, 3_000),
        result(1, "Read", "y" * 1_000),
        billed(call(2, "Read", {"path": "b"}), 6_200, 5_100),
        result(2, "Read", "z" * 1_000),
        billed(text(Role.ASSISTANT, "done"), 7_300, 6_200),
    ])  # fmt: skip
    cost = replayed(session)
    assert contexts(cost) == [5_100, 6_200, 7_300]
    assert session.warm_items == 1
    assert cost.read_tokens == 3_000 + 5_100 + 6_200
    assert cost.missed_tokens == 0


def counted(prompts: list[int], *, added: int = 1_000) -> Session:
    """A session whose calls were billed these prompts, and whose results have that many of our tokens."""
    messages = [text(Role.USER, "x" * 100)]
    for n, prompt in enumerate(prompts):
        messages += [billed(text(Role.ASSISTANT, "on"), prompt, 0), result(n, "Read", "y" * (added - 2))]
    return prepare(Recording(name="sample", messages=tuple(messages)), chars)


def test_a_prompt_is_predicted_by_the_calls_before_it_alone() -> None:
    right = predicted(counted([5_000, 7_000, 9_000, 11_000]))
    # The first one that is predicted knows no factor yet: it takes a token of ours for one of theirs.
    assert (right.calls, right.billed_tokens, right.predicted_tokens) == (3, 27_000, 26_000)
    assert right.mean_error == pytest.approx(1_000 / 27_000)
    wrong = predicted(counted([5_000, 7_000, 9_000, 30_000]))
    assert wrong.predicted_tokens == right.predicted_tokens
    assert wrong.error == pytest.approx(26_000 / 46_000 - 1)


def test_a_call_without_a_bill_is_counted_and_the_others_are_still_checked() -> None:
    whole = counted([5_000, 6_000, 7_000, 8_000, 9_000])
    hole = replace(whole, turns=(*whole.turns[:2], replace(whole.turns[2], call=None), *whole.turns[3:]))
    found = predicted(hole)
    assert (found.calls, found.unbilled_calls, found.error) == (2, 1, 0.0)


@pytest.mark.parametrize("factor", [0.7, 1.0, 2.6])
def test_tokenizers_that_bill_more_or_less_are_learnt(factor: float) -> None:
    (thread,) = calibrated([counted([round(5_000 + n * 1_000 * factor) for n in range(6)])])
    assert thread.scale == pytest.approx(factor, rel=0.01)


def test_the_providers_tokens_are_learned_from_calls_that_added_much() -> None:
    messages = [text(Role.USER, "x" * 100), billed(text(Role.ASSISTANT, ""), 150, 0)]
    for n in range(1, 6):
        asked = call(n, "Read", {"path": "a" * 88})
        messages += [billed(asked, 150 + 1_650 * (n - 1), 0), result(n, "Read", "y" * 1_000)]
    session = ready([m for m in messages if m.blocks[0].text])
    assert session.scale == pytest.approx(1.5, rel=0.02)


def test_what_was_not_recorded_is_never_evicted() -> None:
    session = ready([
        text(Role.USER, "x"),
        billed(call(1, "Read", {"path": "a"}), 50_001, 0),
        result(1, "Read", "y" * 5_000),
        billed(text(Role.ASSISTANT, "done"), 55_100, 50_000),
    ])  # fmt: skip
    assert min(contexts(replayed(session, Window(name="window", limit=1_000)))) >= 50_000


def test_the_cache_has_kept_the_share_that_was_read() -> None:
    def told(read: int) -> Cost:
        return replayed(ready([
            text(Role.USER, "x" * 10_000),
            billed(text(Role.ASSISTANT, "one"), 10_000, 0),
            text(Role.USER, "on"),
            billed(text(Role.ASSISTANT, "two"), 10_010, read),
        ]))  # fmt: skip

    assert [told(read).read_tokens for read in (10_000, 5_000, 0)] == [10_000, 5_000, 0]
    assert [told(read).missed_tokens for read in (10_000, 5_000, 0)] == [0, 5_000, 10_000]
    assert told(0).cost - told(0).missed_cost == pytest.approx(told(10_000).cost)


def test_without_a_bill_a_pause_as_long_as_the_caches_time_loses_it(tmp_path: Path) -> None:
    def told(pause_s: float) -> Report:
        messages = [
            {"role": "user", "content": "x" * 40_000, "timestamp": 1e9},
            {"role": "assistant", "content": "one", "timestamp": 1e9 + 1},
            {"role": "user", "content": "on", "timestamp": 1e9 + pause_s},
            {"role": "assistant", "content": "two", "timestamp": 1e9 + pause_s + 1},
        ]
        path = tmp_path / "session.json"
        path.write_text(json.dumps({"model": "claude-opus-4-6", "messages": messages}))
        return replay_files([path], ["none"], "chars4")

    assert told(299).policies[0].missed_tokens == 0
    assert told(301).policies[0].missed_tokens == 10_000


def test_a_prefix_that_is_too_short_for_the_cache_is_never_read() -> None:
    session = ready([text(Role.USER, "x" * n) if n % 2 else text(Role.ASSISTANT, "y" * n) for n in range(101, 111)])
    assert replayed(session).read_tokens > 0
    rates = replace(ANTHROPIC_RATES, least_cached_tokens=100_000)
    assert replay_session(session, Never(), rates).read_tokens == 0
    some = replay_session(session, Never(), replace(rates, least_cached_tokens=500))
    assert 0 < some.read_tokens < replayed(session).read_tokens
    assert some.read_tokens + some.missed_tokens == replayed(session).read_tokens


def test_what_the_recorded_agent_cleared_leaves_when_it_did() -> None:
    last = text(Role.ASSISTANT, "done")
    messages = [
        text(Role.USER, "do it"),
        call(1, "Read", {}),
        result(1, "Read", "y" * 1_000),
        call(2, "Read", {}),
        result(2, "Read", "z" * 10),
        Message(last.role, last.blocks, cleared=("c1", "c2", "unknown")),
    ]
    session = ready(messages)
    never, recorded = contexts(replayed(session)), contexts(replayed(session, AsRecorded()))
    assert recorded[:2] == never[:2]
    assert recorded[2] == never[2] - 1_000 + 15  # the second result is smaller than what would stand for it


def test_the_window_is_summarised_when_it_is_full_and_not_before() -> None:
    messages = [text(Role.USER, "x" * 100)]
    for n in range(1, 30):
        messages += [call(n, "Read", {}), result(n, "Read", "y" * 1_000)]
    session = ready([*messages, text(Role.ASSISTANT, "done")])
    cost = replayed(session, Window(name="window", limit=10_000))
    assert contexts(cost)[:9] == contexts(replayed(session))[:9]
    assert cost.peak_tokens <= 10_000
    assert cost.read_backs == 0
    assert cost.prefix_breaks >= 3


def recording(*calls: ModelCall, model: str = "claude-opus-4-6") -> Recording:
    asked, said = text(Role.USER, "x"), text(Role.ASSISTANT, "y")
    messages = [m for c in calls for m in (asked, Message(said.role, said.blocks, c.at, c))]
    return Recording(name="r", messages=tuple(messages), declared_model=model)


def test_a_call_costs_what_the_recording_says_or_its_list_price() -> None:
    usage = Usage(input_tokens=1_000, cache_creation_input_tokens=1_000, output_tokens=100)
    given, short, hour, unknown = billed_calls(
        recording(
            ModelCall(usage=usage, usd=0.5),
            ModelCall(usage=usage, model="claude-opus-4-6"),
            ModelCall(usage=usage, model="anthropic/claude-opus-4-6", hour_tokens=1_000),
            ModelCall(usage=usage, model="model-of-nobody", at=0.0),
        )
    )
    assert (given.usd, given.day, unknown.usd) == (0.5, "", None)
    assert short.usd == pytest.approx((1_000 * 5 + 1_000 * 6.25 + 100 * 25) / 1e6)
    assert hour.usd == pytest.approx((1_000 * 5 + 1_000 * 10 + 100 * 25) / 1e6)
    assert unknown.day in ("1969-12-31", "1970-01-01")


def test_a_reply_costs_no_less_than_what_it_holds() -> None:
    begun, whole, given = (
        ModelCall(usage=Usage(output_tokens=n), usd=usd) for n, usd in ((2, None), (90, None), (2, 0.5))
    )
    recorded = recording(begun, whole, given)
    bills = billed_calls(recorded, [(begun, 50), (whole, 50), (given, 50)])
    assert [(bill.usage.output_tokens, bill.is_reply_counted) for bill in bills] == [
        (50, True),
        (90, False),
        (2, False),
    ]
    assert bills[0].usd == pytest.approx(50 * 25 / 1e6)
    assert [bill.usage.output_tokens for bill in billed_calls(recorded)] == [2, 90, 2]


def test_prices_follow_the_model_and_the_time_that_its_cache_was_kept() -> None:
    usage = Usage(cache_creation_input_tokens=1_000)
    hour = recording(ModelCall(usage=usage, hour_tokens=900))
    assert tariff_of(hour, PriceOptions()).rates.write == 2.0
    assert tariff_of(hour, PriceOptions(ttl="5m")).rates.write == 1.25
    assert tariff_of(recording(ModelCall(usage=usage)), PriceOptions()).rates.write == 1.25
    assert tariff_of(recording(ModelCall(), model="gpt-4o"), PriceOptions(ttl="1h")).rates.write == 1.0  # not offered
    unknown = tariff_of(recording(ModelCall(), model="model-of-nobody"), PriceOptions())
    assert (unknown.rates, unknown.usd_per_token) == (ANTHROPIC_RATES, None)
    rates, usd = parse_rates("0.1,1.25,5,3")
    own = tariff_of(hour, PriceOptions(rates=rates, usd_per_million=usd))
    assert (own.rates, own.usd_per_token) == (ANTHROPIC_RATES, 3e-6)


def test_prices_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="not both"):
        PriceOptions(model="gpt-4o", rates=ANTHROPIC_RATES)
    with pytest.raises(ConfigError, match="'model-of-nobody' are not known: give rates \\(--rates\\)"):
        PriceOptions(model="model-of-nobody")
    with pytest.raises(UnsupportedCacheTtl):
        PriceOptions(model="gpt-4o", ttl="1h")
    for wrong in ("", "1,2", "a,b,c", "1,2,3,0", "1,2,3,nan", "1,2,3,4,5"):
        with pytest.raises(ConfigError, match="rates are"):
            parse_rates(wrong)


def test_a_copied_beginning_is_paid_once(tmp_path: Path) -> None:
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    claude_code(paths[0])
    more = json.loads(paths[0].read_text().splitlines()[-1])
    more |= {"uuid": "e", "parentUuid": "d", "message": {**more["message"], "id": "m3"}}
    paths[1].write_text(f"{paths[0].read_text()}\n{json.dumps(more)}")
    report = replay_files(paths, ["none", "economic"], "chars4")
    first, second = (s.paid_usd or 0 for s in report.sessions)
    assert [len(s.bill) for s in report.sessions] == [2, 1]
    assert [s.repeated_calls for s in report.sessions] == [0, 2]
    assert first > second > 0
    assert answer(report).startswith(f"You paid ${first + second:.4f} for 2 sessions; ")


def test_folders_are_found_where_the_agents_put_them(tmp_path: Path) -> None:
    assert default_places(tmp_path, {}) == ()
    claude, codex_home = tmp_path / ".claude" / "projects", tmp_path / "elsewhere" / "sessions"
    claude.mkdir(parents=True)
    codex_home.mkdir(parents=True)
    assert default_places(tmp_path, {}) == (claude,)
    assert default_places(tmp_path, {"CODEX_HOME": str(tmp_path / "elsewhere")}) == (claude, codex_home)
    others = [tmp_path / ".gemini" / "tmp", tmp_path / ".copilot" / "session-state", tmp_path / ".pi/agent/sessions"]
    for folder in others:
        folder.mkdir(parents=True)
    assert default_places(tmp_path, {}) == (claude, *others)
    assert default_places(tmp_path, {"PI_CODING_AGENT_DIR": str(tmp_path)}) == (claude, *others[:2])
    database = tmp_path / "data" / "opencode" / "opencode.db"
    database.parent.mkdir(parents=True)
    assert default_places(tmp_path, {"XDG_DATA_HOME": str(tmp_path / "data")}) == (claude, *others)
    database.touch()
    assert default_places(tmp_path, {"XDG_DATA_HOME": str(tmp_path / "data")}) == (claude, *others, database)


def test_a_folder_is_searched_to_its_depth_and_no_file_is_taken_twice(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c.jsonl"
    deep.parent.mkdir(parents=True)
    for path in (deep, tmp_path / "notes.md", tmp_path / "x.py"):
        path.touch()
    assert recordings_in([tmp_path, deep, tmp_path / "notes.md"]) == (deep, tmp_path / "notes.md")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"no recorded sessions in .*empty.*\.jsonl"):
        recordings_in([tmp_path / "empty"])


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of a superuser, who reads everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_folder_that_cannot_be_read_is_named_with_the_files() -> None:
    with TemporaryDirectory() as folder:  # pytest's own is closed to others
        Path(folder).chmod(0o755)
        found, closed = Path(folder, "a.json"), Path(folder, "closed")
        found.touch()
        closed.mkdir(mode=0)
        with as_nobody():
            assert recordings_in([Path(folder)]) == (found, closed)


def with_bills(folder: Path, number: int) -> list[Path]:
    """Some of the short runs, with their bills in them."""
    bills = {b["id"]: b["calls"] for b in map(json.loads, (TRACES / "mini" / "bills.jsonl").read_text().splitlines())}
    paths = []
    for path in sorted((TRACES / "mini").glob("*.json"))[:number]:
        told = json.loads(path.read_text())
        replies = [m for m in told["messages"] if m["role"] == "assistant"]
        for message, (prompt, read, output, _) in zip(replies, bills[path.stem], strict=False):
            message["usage"] = {"input_tokens": prompt - read, "cache_read_input_tokens": read, "output_tokens": output}
        paths.append(folder / path.name)
        paths[-1].write_text(json.dumps(told | {"model": "gemini-3-pro-preview"}))
    return paths


def off(report: Report) -> float:
    paid = sum(session.paid_usd or 0.0 for session in report.sessions)
    return sum(session.recorded.usd or 0.0 for session in report.sessions) / paid - 1


@pytest.mark.service
@pytest.mark.skipif(not (TRACES / "mini").is_dir(), reason="needs the recorded sessions that CTXFS_TRACES names")
def test_the_replay_of_real_runs_is_close_to_their_bills(tmp_path: Path) -> None:
    report = replay_files(with_bills(tmp_path, 25), ["none", "economic"], "chars4")
    assert abs(off(report)) < 0.15
    assert check(report).startswith("Check: each prompt, predicted from the calls before it, against its bill: ")


@pytest.mark.skipif(not TRACES.is_dir(), reason="recorded sessions are not here")
def test_a_session_that_fits_under_the_shortest_cached_prefix_loses_nothing_by_eviction() -> None:
    report = replay_files([TRACES / "cc-71-d4670c34ac-0.json"], ["none", "economic"], "chars4")
    assert report.policies[1].relative_cost <= 1.0
