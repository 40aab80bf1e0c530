"""What ctxfs does, as a policy of the replay: what its planner is told of a recording."""

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
