"""Plans, as values."""

from ctxfs.eviction.offload_plan import Archive, Plan


def test_a_plan_tells_its_archive() -> None:
    archive = Archive(
        item_id="msg_9",
        name="msg_9.json",
        path="/s/msg_9.json",
        item_ids=("msg_1", "call_1"),
        placeholder="gone",
        tokens_before=2_000,
        tokens_after=20,
        reason="whole exchanges, stored together",
    )
    plan = Plan(archive=archive)
    assert plan.explain().splitlines() == [
        "2 items: 2,000 -> 20 tokens, whole exchanges, stored together",
        "in all 1,980 tokens leave, from msg_1 on",
    ]
