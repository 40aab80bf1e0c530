"""An Inspect task by arms: its example, whose model reads back inside of Inspect's requests what was replaced."""

from frameworks.arms import figures_of


def test_the_samples_are_solved_in_both_arms() -> None:
    none, exact = figures_of("with_inspect_ai.py")
    assert (none["solved"], exact["solved"]) == (2, 2)
    assert (none["replaced"], exact["replaced"]) == (0, 4)
    assert exact["read_backs"] == 2
    assert none["refusals"] == exact["refusals"] == 0
