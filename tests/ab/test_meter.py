"""A budget that is never exceeded, and a file of results that a killed process leaves whole."""

import json
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ctxfs.errors import BudgetSpent, ConfigError
from ctxfs.lab.ab.arms import CLEARED, Clearing, arm_named, checked_arms
from ctxfs.lab.ab.meter import Budget, Meter, Pricing
from ctxfs.lab.ab.results import Header, Results, SessionKey, SessionResult
from ctxfs.lab.ab.running import left_to_play, pair_cost_usd, pairs_in_order
from ctxfs.lab.ab.tasks import Task, fingerprint, read_tasks
from ctxfs.messages import known_model

MODEL = "claude-sonnet-5-5"
KEY = SessionKey("t", 0, "none")
HEADER = Header(seed=0, arms=("none", "default"), repeats=1, tasks="abc")


def body(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 1_000, "messages": [{"role": "user", "content": text}], **more}


def usage(total: int, read: int = 0, output: int = 10) -> tuple[dict[str, Any], str | None]:
    return {"input_tokens": total - read, "cache_read_input_tokens": read, "output_tokens": output}, MODEL


def began(meter: Meter, given: dict[str, Any]) -> Any:
    return meter.began("messages", given, json.dumps(given).encode(), place="")


def meter(folder: Path, budget: Budget, **settings: Any) -> tuple[Meter, Results]:
    results = Results(folder / "r.jsonl", HEADER)
    return Meter(KEY, results, budget, **{"pricing": Pricing(), **settings}), results


def test_a_call_that_could_exceed_the_budget_is_not_begun(tmp_path: Path) -> None:
    info = known_model(MODEL)
    assert info is not None
    assert info.prices is not None
    least = 1_000 * info.prices.output / 1e6
    one, results = meter(tmp_path, Budget(least * 1.5))
    call = began(one, body())
    with pytest.raises(BudgetSpent, match=r"the budget of \$0\.\d+ does not allow"):
        began(one, body())
    assert one.stopped == "budget"
    call.ended(200, usage(100), is_whole=True)
    began(one, body()).ended(200, usage(100), is_whole=True)
    assert one.counts.calls == 2
    assert results.spent_usd == pytest.approx(one.counts.usd)
    assert one.counts.usd < least
    results.close()


def test_many_threads_never_spend_more_than_the_budget(tmp_path: Path) -> None:
    budget = Budget(0.2)
    one, results = meter(tmp_path, budget)

    def work() -> None:
        for _ in range(40):
            try:
                call = began(one, body())
            except BudgetSpent:
                return
            call.ended(200, usage(20, output=1_000), is_whole=True)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.05 < one.counts.usd <= 0.2
    assert one.counts.usd == pytest.approx(results.spent_usd)
    results.close()


def test_a_session_has_a_budget_of_its_own(tmp_path: Path) -> None:
    one, results = meter(tmp_path, Budget(None), limit_usd=0.001)
    with pytest.raises(BudgetSpent, match="the session's budget"):
        began(one, body())
    assert one.stopped == "limit"
    results.close()


def test_a_model_without_prices_is_refused_while_there_is_a_budget(tmp_path: Path) -> None:
    one, results = meter(tmp_path, Budget(5.0))
    with pytest.raises(BudgetSpent, match="no prices are known of the model 'nobody-7'"):
        began(one, body(model="nobody-7"))
    results.close()
    free, results = meter(tmp_path, Budget(None))
    began(free, body(model="nobody-7")).ended(200, ({"input_tokens": 5, "output_tokens": 5}, None), is_whole=True)
    assert (free.counts.usd, free.counts.unpriced_calls) == (0.0, 1)
    results.close()
    with pytest.raises(ConfigError, match="no prices are known"):
        Pricing(model="nobody-7")
    priced, results = meter(tmp_path, Budget(5.0), pricing=Pricing(model=MODEL))
    began(priced, body(model="nobody-7")).ended(200, usage(1_000_000), is_whole=True)
    assert priced.counts.usd > 1
    results.close()


def test_gemini_names_its_model_in_the_path_and_its_limit_in_a_part_of_the_body(tmp_path: Path) -> None:
    one, results = meter(tmp_path, Budget(5.0))
    given: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    given["generationConfig"] = {"maxOutputTokens": 100, "candidateCount": 2}
    call = one.began("gemini", given, json.dumps(given).encode(), place="", model="gemini-2.5-pro")
    info = known_model("gemini-2.5-pro")
    assert info is not None
    assert info.prices is not None
    prompt = len(json.dumps(given, separators=(",", ":"))) * info.prices.input
    assert call.reserved_usd == pytest.approx((prompt + 200 * info.prices.output) / 1e6)
    call.ended(200, ({"promptTokenCount": 20, "candidatesTokenCount": 5}, None), is_whole=True)
    assert 0 < one.counts.usd < call.reserved_usd
    assert one.counts.unpriced_calls == 0
    results.close()


def test_the_bound_holds_the_bill_of_a_prompt_that_grows_denser(tmp_path: Path) -> None:
    """A byte is at least as much as a token, and no more is reserved than twice the densest prompt before."""
    one, results = meter(tmp_path, Budget(100.0))
    first = began(one, body("x" * 40_000))
    assert first.reserved_usd > 40_000 * 3 / 1e6
    first.ended(200, usage(10_000), is_whole=True)
    second = began(one, body("x" * 80_000))
    assert second.reserved_usd < first.reserved_usd * 1.3
    second.ended(200, usage(38_000, output=1_000), is_whole=True)
    assert one.counts.usd <= first.reserved_usd + second.reserved_usd
    results.close()


def test_a_reply_without_a_bill_or_an_end_costs_the_most(tmp_path: Path) -> None:
    one, results = meter(tmp_path, Budget(100.0))
    call = began(one, body())
    call.ended(200, None, is_whole=True)
    assert one.counts.usd == call.reserved_usd
    assert one.counts.unbilled_calls == 1
    call.ended(200, usage(5), is_whole=True)
    assert one.counts.calls == 1, "it ended once"
    broken = began(one, body())
    broken.ended(200, usage(5, output=1), is_whole=False)
    assert one.counts.usd == call.reserved_usd + broken.reserved_usd
    began(one, body()).ended(400, None, is_whole=True)
    began(one, body()).ended(0, None, is_whole=False)
    assert (one.counts.refusals, one.counts.calls) == (1, 2)
    assert one.counts.usd == call.reserved_usd + broken.reserved_usd
    results.close()


def test_the_hour_of_a_cache_is_paid(tmp_path: Path) -> None:
    one, results = meter(tmp_path, Budget(None))
    split = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1_000_000}
    bill = {"input_tokens": 0, "cache_creation_input_tokens": 1_000_000, "cache_creation": split, "output_tokens": 0}
    info = known_model(MODEL)
    assert info is not None
    assert info.prices is not None
    began(one, body()).ended(200, (bill, MODEL), is_whole=True)
    assert one.counts.usd == pytest.approx(info.prices.at(1_000_000).cache_write["1h"])
    results.close()


def test_what_a_session_does_is_counted_once(tmp_path: Path) -> None:
    one, results = meter(tmp_path, Budget(None), stored_in="/place")
    calls: list[Any] = [
        ("run", {"a": 1, "b": 2}),
        ("run", {"b": 2, "a": 1}),
        ("Read", {"file_path": "/place/session/x.txt"}),
        ("context_read", {"path": "x"}),
    ]
    messages: list[Any] = [{"role": "user", "content": "go"}]
    for number, (name, arguments) in enumerate(calls):
        block = {"type": "tool_use", "id": f"c{number}", "name": name, "input": arguments}
        messages.append({"role": "assistant", "content": [block]})
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "fine"}
        messages.append({"role": "user", "content": [result]})
        read = 500 if number != 2 else 100
        began(one, body(messages=messages)).ended(200, usage(1_000, read), is_whole=True)
    counts = one.counts
    assert (counts.read_backs, counts.repeated_calls, counts.cache_breaks, counts.calls) == (2, 1, 1, 4)
    assert (counts.input_tokens, counts.cache_read_tokens) == (2_400, 1_600)
    results.close()


def test_results_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Results(path, HEADER) as results:
        results.sent(KEY, 1, 2.0)
        results.billed(KEY, 1, 0.5)
        results.sent(KEY, 2, 3.0)
        results.ended(SessionResult(task="t", repeat=0, arm="none", outcome="solved", usd=0.5))
    with path.open("ab") as file:
        file.write(b'{"kind":"session","task":"half')
    with Results(path, HEADER) as results:
        assert results.spent_usd == 3.5, "a call without a bill counts with the most"
        assert [one.outcome for one in results.sessions] == ["solved"]
        results.sent(KEY, 2, 1.0)
        results.billed(KEY, 2, 0.25)
        assert results.spent_usd == 3.75, "calls of another start are other calls"
    with Results(path, HEADER) as results:
        assert results.spent_usd == 3.75
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tasks": "other"}, "other tasks"),
        ({"seed": 1}, r"other seed \(0 then, 1 now\)"),
        ({"arms": ("none",)}, "other arms"),
    ],
)
def test_another_comparison_is_not_continued(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    path = tmp_path / "r.jsonl"
    with Results(path, HEADER) as results:
        results.sent(KEY, 1, 2.0)
    given: dict[str, Any] = {"seed": 0, "arms": ("none", "default"), "repeats": 1, "tasks": "abc", **changed}
    with pytest.raises(ConfigError, match=said):
        Results(path, Header(**given))
    path.write_text("no results\n")
    with pytest.raises(ConfigError, match="not a file of results"):
        Results(path, HEADER)


def test_a_comparison_of_which_nothing_could_be_played_is_begun_again(tmp_path: Path) -> None:
    """Its command was wrong, and the next one is another."""
    path = tmp_path / "r.jsonl"
    with Results(path, HEADER) as results:
        results.ended(SessionResult(task="t", repeat=0, arm="none", outcome="failed"))
    other = Header(seed=0, arms=("none", "default"), repeats=1, tasks="abc", command="other")
    with Results(path, other) as results:
        assert results.sessions == ()
        results.ended(SessionResult(task="t", repeat=0, arm="none", outcome="unsolved"))
    with pytest.raises(ConfigError, match="begun with other command: use the same"):
        Results(path, HEADER)


def test_two_starts_at_once_are_refused(tmp_path: Path) -> None:
    with (
        Results(tmp_path / "r.jsonl", HEADER),
        pytest.raises(ConfigError, match="in use by another comparison"),
    ):
        Results(tmp_path / "r.jsonl", HEADER)


def test_pairs_are_drawn_and_gone_on_with(tmp_path: Path) -> None:
    tasks = [Task(id=f"t{n}", prompt="p") for n in range(20)]
    arms = checked_arms(["none", "default", "exact:3"])
    pairs = pairs_in_order(tasks, arms, 2, seed=7)
    assert pairs == pairs_in_order(tasks, arms, 2, seed=7)
    assert pairs != pairs_in_order(tasks, arms, 2, seed=8)
    assert sorted((pair.task.id, pair.repeat) for pair in pairs) == sorted(
        (f"t{n}", r) for n in range(20) for r in (0, 1)
    )
    assert len({tuple(arm.name for arm in pair.arms) for pair in pairs}) > 3, "the order of arms is drawn for each pair"
    assert [pair.repeat for pair in pairs] == [0] * 20 + [1] * 20
    first = pairs[0]
    done = SessionResult(task=first.task.id, repeat=0, arm="none", outcome="crashed", usd=0.4, most_usd=0.9)
    again = SessionResult(task=first.task.id, repeat=0, arm="default", outcome="budget", usd=0.1)
    assert {arm.name for arm in left_to_play(first, [done, again])} == {"default", "exact:3"}
    assert pair_cost_usd([done, again], 3) == pytest.approx(1.7)


def test_arms_and_tasks_that_cannot_work(tmp_path: Path) -> None:
    assert arm_named("clear:100k").clears_above_tokens == 100_000
    assert arm_named("exact:3").each_tool_keeps == 3
    for wrong in (["none"], ["none", "none"], ["none", "defualt"], ["none", "exact:0"]):
        with pytest.raises(ConfigError):
            checked_arms(wrong)
    path = tmp_path / "tasks.jsonl"
    good = {"id": "a", "prompt": "p", "check": "true"}
    for lines, said in (
        ([{**good, "chek": 1}], "did you mean 'check'"),
        ([{"id": "a", "prompt": "p"}], "'check' is missing"),
        ([good, good], "two tasks have the id 'a'"),
        ([{**good, "directory": "nowhere"}], "is not a directory"),
        ([{**good, "check": 7}], "check must be a command"),
        ([], "there are no tasks"),
    ):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(ConfigError, match=said):
            read_tasks(path)
    path.write_text(json.dumps({**good, "prompt": "one\u2028line"}, ensure_ascii=False) + "\n", encoding="utf-8")
    (task,) = read_tasks(path)
    assert (task.prompt, task.check) == ("one\u2028line", ("sh", "-c", "true"))
    assert fingerprint([task]) != fingerprint([Task(id="a", prompt="other", check=("sh", "-c", "true"))])


def test_clearing_keeps_the_last_results_and_never_goes_back() -> None:
    messages: list[Any] = [{"role": "user", "content": "go"}]
    clearing = Clearing(2_000, 2)
    sizes = []
    cleared = []
    for number in range(12):
        block = {"type": "tool_use", "id": f"c{number}", "name": "run", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"{number} " * 700}
        messages += [{"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
        sent = clearing.edited("messages", body(messages=messages))
        sizes.append(len(json.dumps(sent)))
        cleared.append([m["content"][0]["content"] == CLEARED for m in sent["messages"][2::2]])
    assert max(sizes) < 2_000 * 4 + 3_000
    for before, after in pairwise(cleared):
        assert all(still for was, still in zip(before, after, strict=False) if was)
        assert not any(after[-2:])
    assert len({sum(one) for one in cleared}) < 7, "it clears in batches"


def test_a_file_of_tasks_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the tasks in .*none\.jsonl cannot be read: No such file or directory$"):
        read_tasks(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b"\xe9\n")
    with pytest.raises(ConfigError, match=r"the tasks in .*latin\.jsonl are not UTF-8"):
        read_tasks(tmp_path / "latin.jsonl")
