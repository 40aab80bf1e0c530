"""The histories of many threads: found by their ids, closed when idle, opened again when they are used."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Part
from ctxfs.context.history.pool import Histories, history_of, require_history
from ctxfs.errors import ConfigError
from ctxfs.messages.names import check_session_id, session_name

RESULTS = [
    Part("user", "go", 0),
    *(
        part
        for n in range(2)
        for part in (
            Part("reply", "r", (n, 0)),
            Part("call", {}, (n, 1), f"c{n}", "t"),
            Part("result", f"{n} words\n" * 500, (n, 2), f"c{n}", "t"),
        )
    ),
]


def test_a_thread_has_one_history_and_its_own_session(tmp_path: Path) -> None:
    with Histories(tmp_path, keep_recent={"t": 1}) as histories:
        assert histories.of("a") is histories.of("a")
        assert histories.of("user/1").session_id != histories.of("user:1").session_id
        assert histories.of("a").rewrite(RESULTS)
    assert {path.name for path in tmp_path.iterdir()} == {"a"}  # who asks for nothing leaves nothing


class Impatient(Histories):
    """Closes a history as soon as another one is asked for."""

    idle_s = 0.0


def test_idle_histories_are_closed_and_open_again(tmp_path: Path) -> None:
    with Impatient(tmp_path, keep_recent={"t": 1}) as histories:
        first = histories.of("a")
        edits = dict(first.rewrite(RESULTS))
        histories.of("b")
        assert histories.of("a") is not first
        assert dict(first.rewrite(RESULTS)) == edits  # it may still be used
        assert dict(histories.of("a").rewrite(RESULTS)) == edits


def test_the_history_that_was_used_least_lately_is_closed_for_a_new_one(tmp_path: Path) -> None:
    histories = Histories(tmp_path, max_open=2)
    first = histories.of("a")
    kept = histories.of("b")
    histories.of("c")
    assert histories.of("b") is kept
    assert histories.of("a") is not first
    histories.close()
    histories.close()


def test_settings_that_cannot_work_are_refused_at_once(tmp_path: Path) -> None:
    for settings in ({"max_open": 0}, {"layout": "x"}, {"keep_recent": 5}):
        with pytest.raises(ConfigError):
            Histories(tmp_path / "root", **settings)
    with pytest.raises(ConfigError):
        Histories(tmp_path).of(5)  # type: ignore[arg-type]


@given(st.lists(st.text(), unique=True, max_size=5))
def test_distinct_threads_have_distinct_sessions(ids: list[str]) -> None:
    names = {check_session_id(session_name(raw)) for raw in ids}
    assert len(names) == len(ids)


def test_a_name_that_looks_like_a_made_one_is_made_into_another() -> None:
    made = session_name("a b")
    assert session_name(made) not in (made, "a b")
    assert session_name("thread-1") == "thread-1"
    assert check_session_id(session_name("x" * 500))


def test_the_tools_of_all_histories_are_known_without_one(tmp_path: Path) -> None:
    with Histories(tmp_path, read_tool="open_file") as histories:
        names = [tool.name for tool in histories.tools]
        assert names == [tool.name for tool in histories.of("a").tools]
        assert names[0] == "open_file"
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_takes_one_history_or_many(tmp_path: Path) -> None:
    one, many = History("t", root_path=tmp_path), Histories(tmp_path)
    assert history_of(one, "a") is one
    assert history_of(many, "a") is many.of("a")


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    require_history(Histories(tmp_path), many=True)
    with pytest.raises(ConfigError, match=r"use History\(...\), or histories.of\(thread_id\)"):
        require_history(Histories(tmp_path))
    with pytest.raises(ConfigError, match=r"use History\(...\) or Histories\(...\)"):
        require_history("thread-1", many=True)
