"""The lane with a real inference server, against a scripted one: what it plays, and that it notices what is wrong."""

from dataclasses import dataclass

import pytest

import live
from ctxfs.messages.tokens import default_counter
from ctxfs.testing import ChatCompletionsServer

pytestmark = pytest.mark.service


@dataclass(frozen=True)
class DearPlaceholders:
    """The tokenizer of a server for which a placeholder costs five times what it costs for ours."""

    def count(self, text: str) -> int:
        tokens = default_counter().count(text)
        return tokens + text.count("[Content offloaded]") * 200


def test_thirty_calls_are_answered_predicted_and_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    with ChatCompletionsServer(["Go on."] * 30, counter=default_counter()) as server:
        assert live.main(["--url", server.url, "--model", "scripted"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.count("10 of 10") + row.count("5 of 5") for row in rows] == [2, 2, 2]
    assert len(server.requests) == 30
    assert not server.refusals


def test_prompts_that_the_ledger_does_not_predict_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with ChatCompletionsServer(["Go on."] * 30, counter=DearPlaceholders()) as server:
        assert live.main(["--url", server.url, "--model", "scripted"]) == 1
    assert capsys.readouterr().out.count("a prompt was more than 2% off") == 3
