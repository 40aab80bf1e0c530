"""What an adapter to a framework's history has to keep, as tests: subclass ``HistoryConformance`` with your adapter.

    class TestMyAdapter(HistoryConformance):
        def rewritten(self, history, parts, branch):
            messages = my_messages(parts)
            return contents_of(my_adapter(history, branch).send(messages))

Each test plays random histories; see ``ctxfs.testing.history_play`` for what frameworks do in them, and for the rules.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Part
from ctxfs.testing.history_play import Played, Violation, play, rewritten_parts

__all__ = ["HistoryConformance"]

_SHOWN = 10
"""So many of the rules that were broken are shown."""


class HistoryConformance:
    """The conformance tests of an adapter. ``seeds``: how many histories are played; ``steps``: how long each is."""

    seeds = 20
    steps = 40

    def rewritten(self, history: History, parts: Sequence[Part], branch: str) -> Sequence[Any]:
        """Return what the adapter sends for each of ``parts``, in order, through ``history`` and on ``branch``.

        Override it: make your framework's messages of the parts, send them by your adapter, and read the contents back.
        A content is a text, blocks in the shape of the Messages API, or the arguments of a call.
        """
        return rewritten_parts(history, parts, branch)

    def played(self, tmp_path: Path) -> list[Played]:
        """Play the histories, each in a session of its own under ``tmp_path``."""
        return [play(seed, tmp_path, steps=self.steps, rewritten=self.rewritten) for seed in range(self.seeds)]

    def test_the_rules_hold_in_random_histories(self, tmp_path: Path) -> None:
        """Nothing raises, nothing is taken back, nothing changes without a reason, and nothing is lost."""
        played = self.played(tmp_path)
        if broken := violations(played):
            pytest.fail("\n".join(map(repr, broken[:_SHOWN])))
        if not sum(one.replaced for one in played):
            pytest.fail("the adapter replaced nothing in any of the histories")


def violations(played: Sequence[Played]) -> list[Violation]:
    """The rules that were broken in all of the plays."""
    return [violation for one in played for violation in one.violations]
