"""mini-swe-agent's own runner by arms: its example, whose shell has the only tool."""

from frameworks.arms import figures_of


def test_the_repository_is_repaired_in_both_arms() -> None:
    none, exact = figures_of("with_mini_swe_agent.py")
    assert (none["solved"], exact["solved"]) == (1, 1)
    assert (none["replaced"], exact["replaced"]) == (0, 1)
    assert none["refusals"] == exact["refusals"] == 0
    assert exact["usd"] < none["usd"]
