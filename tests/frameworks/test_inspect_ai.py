"""An Inspect task by arms: its example, whose model reads back inside of Inspect's requests what was replaced."""

from frameworks.arms import figures_of


def test_the_sample_that_is_named_is_solved_in_both_arms() -> None:
    none, exact = figures_of("with_inspect_ai.py")
    assert (none["solved"], exact["solved"]) == (1, 1)
    assert (none["replaced"], exact["replaced"]) == (0, 2)
    assert exact["read_backs"] == 1
    assert none["refusals"] == exact["refusals"] == 0
