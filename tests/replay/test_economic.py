"""What ctxfs does, as a policy of the replay: what its planner is told of a recording."""

from dataclasses import replace

from ctxfs.eviction.preview import PREVIEW_TOKENS
from ctxfs.lab.recordings.recording import Kind
from ctxfs.lab.replay.economic import Economic, EconomicRun
from ctxfs.lab.replay.session import Item, Session
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import ANTHROPIC_RATES
from ctxfs.messages.tokens import count_json

COUNTER = CharsCounter()


def test_the_planner_counts_the_thinking_of_a_reply_whose_arguments_may_leave() -> None:
    arguments = {"text": "a line of the file\n" * 300}
    asked = Item(index=0, kind=Kind.TEXT, tokens=10, text="x" * 40)
    thought = Item(index=1, kind=Kind.THINKING, tokens=500, text="y" * 2_000)
    tokens = COUNTER.count("Write") + count_json(COUNTER, arguments)
    call = Item(index=2, kind=Kind.TOOL_INPUT, tokens=tokens, tool="Write", call_id="c", arguments=arguments)
    policy = Economic(name="economic", rates=ANTHROPIC_RATES, count=COUNTER.count)
    run = policy.start(Session(name="s", turns=(), vocabulary={}))
    assert isinstance(run, EconomicRun)
    assert not run.plan((asked,), 0.0)
    run.replied((thought, call), Usage())
    ledger = run.ledger
    assert ledger.held.keys() == {"c.input"}
    assert ledger.total_tokens == asked.tokens + thought.tokens + call.tokens


def test_a_large_result_is_replayed_as_the_preview_that_is_sent() -> None:
    text = "\n".join(f"line {n} of what was printed" for n in range(2_000))
    large = Item(index=0, kind=Kind.TOOL_RESULT, tokens=COUNTER.count(text), text=text, tool="Bash", call_id="c")
    small = Item(index=1, kind=Kind.TOOL_RESULT, tokens=500, text="x" * 2_000, tool="Bash", call_id="d")
    session = Session(name="s", turns=(), vocabulary={})
    policy = Economic(name="economic", rates=ANTHROPIC_RATES, count=COUNTER.count)
    (preview,) = policy.start(session).plan((large, small), 0.0)
    assert preview.index == large.index
    assert preview.tokens <= PREVIEW_TOKENS
    assert "preview_above_tokens" in preview.why
    whole = replace(policy, preview_above_tokens=None)
    assert not whole.start(session).plan((large, small), 0.0)


def test_a_result_that_comes_again_is_replayed_as_the_line_or_the_diff_that_is_sent() -> None:
    text = "\n".join(f"line {n} of what was printed" for n in range(200))
    texts = (text, text, text.replace("line 100", "the line 100"))
    policy = Economic(name="economic", rates=ANTHROPIC_RATES, count=COUNTER.count, repeats=True)
    whys: list[str] = []
    for tells in (replace(policy, repeats=False), policy):
        run = tells.start(Session(name="s", turns=(), vocabulary={}))
        for number, one in enumerate(texts):
            call = Item(index=2 * number, kind=Kind.TOOL_INPUT, tokens=20, tool="look", call_id=f"c{number}")
            run.replied((call,), Usage())
            tokens = COUNTER.count(one)
            shown = Item(
                index=2 * number + 1, kind=Kind.TOOL_RESULT, tokens=tokens, text=one, tool="look", call_id=f"c{number}"
            )
            whys += [told.why for told in run.plan((shown,), 0.0)]
    assert whys == ["the same as c0 (setting: repeats)", "changed since c0 (setting: repeats)"]
