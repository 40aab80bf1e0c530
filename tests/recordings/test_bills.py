"""Usage, times, models and dollars, as each format records them; and what is damaged or lacks its package."""

import gc
import json
import os
import sqlite3
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from connections import noted_connections
from ctxfs.errors import MissingExtra, ReplayFormatError
from ctxfs.lab.recordings.formats.opencode import read_database
from ctxfs.lab.recordings.formats.table import BINARY_FORMATS, FORMATS, load, parse
from ctxfs.lab.recordings.recording import Kind, Recording, Role
from ctxfs.messages.base import Usage
from ctxfs.session.content.compression import zstd
from recording_samples import (
    ANSWER,
    MODEL,
    PATH,
    QUESTION,
    RESULT,
    SAMPLES,
    TIMES,
    atif,
    codex,
    copilot_cli,
    gemini_cli_lines,
    inspect_eval,
    opencode_database,
    openhands_trajectory,
    pi,
)

RAW = Path(os.environ.get("CTXFS_TRACES", "../shared/traces")) / "raw"


def written(make: Callable[[Path], None], folder: Path) -> Path:
    path = folder / "recorded"
    make(path)
    return path


def only(path: Path) -> Recording:
    (recording,) = load(path)
    return recording


def test_every_format_has_a_sample() -> None:
    assert {f.name for f in FORMATS} | {f.name for f in BINARY_FORMATS} == set(SAMPLES)


VARIANTS = SAMPLES | {"Gemini CLI, by lines": gemini_cli_lines, "OpenHands, a trajectory": openhands_trajectory}


@pytest.mark.parametrize("name", VARIANTS)
def test_each_format_gives_what_was_said_and_billed(name: str, tmp_path: Path) -> None:
    recording = only(written(VARIANTS[name], tmp_path))
    assert [[b.text for b in m.blocks if b.kind is not Kind.THINKING] for m in recording.messages] == [
        [QUESTION],
        [PATH],
        [RESULT],
        [ANSWER],
    ]
    called, found = recording.messages[1].blocks[-1], recording.messages[2].blocks[0]
    assert called.tool == found.tool != ""
    first, second = recording.calls
    assert first.usage == Usage(input_tokens=1_500, cache_read_input_tokens=500, output_tokens=20)
    assert second.usage == Usage(input_tokens=100, cache_read_input_tokens=2_000, output_tokens=10)
    assert (first.at, second.at) == TIMES
    assert recording.model == first.model == MODEL
    assert [first.usd, second.usd] in ([0.25, 0.5], [None, None])
    assert recording.project in ("/p", "")


def test_what_a_compaction_of_codex_left_is_another_thread(tmp_path: Path) -> None:
    path = written(codex, tmp_path)
    kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "what is known"}]}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "on"}]}
    rows = [
        {"type": "compacted", "payload": {"message": "", "replacement_history": [kept]}},
        {"type": "response_item", "payload": said},
    ]
    path.write_text("\n".join([path.read_text(), *map(json.dumps, rows)]))
    threads = only(path).threads()
    assert [len(t.messages) for t in threads] == [4, 2]
    assert threads[1].messages[0].blocks[0].text == "what is known"


def test_what_codex_rolled_back_was_billed_and_stands_in_no_thread(tmp_path: Path) -> None:
    path = written(codex, tmp_path)
    rolled_back = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    path.write_text("\n".join([path.read_text(), json.dumps(rolled_back)]))
    recording = only(path)
    assert (recording.messages, len(recording.asides), len(list(recording.calls))) == ((), 2, 2)


def test_a_branch_of_pi_that_was_left_was_billed_and_stands_in_no_thread(tmp_path: Path) -> None:
    path = written(pi, tmp_path)
    asked = {"role": "user", "content": [{"type": "text", "text": "again"}]}
    rows = [{"type": "message", "id": "e9", "parentId": None, "timestamp": "2026-02-02T02:00:00Z", "message": asked}]
    path.write_text("\n".join([path.read_text(), *map(json.dumps, rows)]))
    recording = only(path)
    assert [b.text for m in recording.messages for b in m.blocks] == ["again"]
    assert len(recording.asides) == 2


def test_what_a_compaction_of_pi_kept_begins_another_thread(tmp_path: Path) -> None:
    path = written(pi, tmp_path)
    said = {"role": "assistant", "model": MODEL, "content": [{"type": "text", "text": "on"}]}
    rows = [
        {"type": "compaction", "id": "e4", "parentId": "e3", "summary": "what is known", "firstKeptEntryId": "e2"},
        {"type": "message", "id": "e5", "parentId": "e4", "message": said},
    ]
    path.write_text("\n".join([path.read_text(), *map(json.dumps, rows)]))
    first, second = only(path).threads()
    assert len(first.messages) == 4
    assert [b.text for b in second.messages[0].blocks] == ["what is known", RESULT, ANSWER]
    assert [m.role.value for m in second.messages] == ["user", "assistant"]


def test_a_file_of_copilots_has_no_bill_for_its_calls(tmp_path: Path) -> None:
    path = written(copilot_cli, tmp_path)
    rows = [line for line in path.read_text().splitlines() if "assistant.usage" not in line]
    path.write_text("\n".join(rows))
    recording = only(path)
    assert recording.has_reply
    assert recording.model == MODEL
    assert list(recording.calls) == []


@pytest.mark.parametrize(
    ("file", "replies", "billed"), [("pi-session.jsonl", 11, 11), ("openhands-output.jsonl", 33, 33)]
)
def test_sessions_that_agents_really_wrote_are_read(file: str, replies: int, billed: int) -> None:
    if not (RAW / file).exists():
        pytest.skip(f"needs {RAW / file}: set CTXFS_TRACES")
    recording = only(RAW / file)
    assert sum(m.role is Role.ASSISTANT for m in recording.messages) == replies
    assert sum(call.usage is not None for call in recording.calls) == billed


def test_a_sub_agents_trajectory_is_another_thread(tmp_path: Path) -> None:
    path = written(atif, tmp_path)
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"subagent_trajectories": [whole | {"trajectory_id": "t"}]}))
    assert len(only(path).threads()) == 2


def test_what_the_package_refuses_is_an_error_that_says_why(tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text('{"schema_version": "ATIF-v1.7", "agent": {}, "steps": []}')
    with pytest.raises(ReplayFormatError, match=r"wrong\.json: ATIF, but not as its schema says: .*agent\.name"):
        load(path)


def test_without_its_package_atif_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "atif", None)
    with pytest.raises(MissingExtra, match=r"ctxfs\[atif\]"):
        load(written(atif, tmp_path))


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    opened = sqlite3.connect(path)
    opened.execute("CREATE TABLE mine (id TEXT)")
    opened.close()
    with pytest.raises(ReplayFormatError, match=r"other\.db: SQLite, but no database of opencode's"):
        load(path)


def test_a_database_is_closed_however_far_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(opencode_database, tmp_path)
    closed = noted_connections(monkeypatch)
    sessions = iter(read_database(path))
    next(sessions)
    del sessions
    gc.collect()
    assert closed == {0: True}


def test_a_database_is_only_read(tmp_path: Path) -> None:
    path = written(opencode_database, tmp_path)
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert only(path).name == "ses_1"
        assert [p.name for p in tmp_path.iterdir()] == ["recorded"]
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("name", ["other.txt", "samples/1.json"])
def test_another_zip_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "not JSON")
    with pytest.raises(ReplayFormatError, match=r"other\.zip: "):
        load(path)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ReplayFormatError, match=r"other\.zip: "):
        load(path)


def packed_with_zstd(path: Path, *, damaged: bool = False, method: int = 93) -> None:
    """The sample of an Inspect log in a zip as Inspect packs it; zipfile cannot write it before Python 3.14."""
    inspect_eval(path)
    with zipfile.ZipFile(path) as archive:
        (name,) = (n for n in archive.namelist() if n.startswith("samples/"))
        content = archive.read(name)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, zstd.compress(content))
    packed = bytearray(path.read_bytes())
    crc = zlib.crc32(content) ^ damaged
    for head, of_method in ((0, 8), (packed.index(b"PK\x01\x02"), 10)):
        packed[head + of_method] = method
        packed[head + of_method + 6 : head + of_method + 10] = crc.to_bytes(4, "little")
        packed[head + of_method + 14 : head + of_method + 18] = len(content).to_bytes(4, "little")
    path.write_bytes(packed)


def test_samples_packed_with_zstd_are_read(tmp_path: Path) -> None:
    deflated, packed = tmp_path / "log.eval", tmp_path / "zstd" / "log.eval"
    packed.parent.mkdir()
    inspect_eval(deflated)
    packed_with_zstd(packed)
    assert load(packed) == load(deflated)
    packed_with_zstd(packed, damaged=True)
    with pytest.raises(ReplayFormatError, match=r"log\.eval: bad CRC-32"):
        load(packed)
    packed_with_zstd(packed, method=99)
    with pytest.raises(ReplayFormatError, match=r"log\.eval: packed in a way that is not known"):
        load(packed)


@pytest.mark.parametrize("usage", [{"input_tokens": -1, "output_tokens": 1}, {"tokens": 3}, "many", [1]])
def test_usage_that_is_no_usage_is_named(usage: object) -> None:
    rows = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "usage": usage}]
    with pytest.raises(ReplayFormatError, match="a message is not as expected"):
        parse(json.dumps(rows), name="x")


KNOWN = {
    "atif-terminus2-summarization.trajectory.json": (1, 2, 7, 6_502),
    "claude-code-compact_boundary.jsonl": (1, 2, 50, 4_593_483),
    "claude-code-inline-sidechain.slice.jsonl": (1, 2, 22, 576_573),
    "claude-code-microcompact.slice.jsonl": (1, 1, 18, 2_354_921),
    "claude-code-sidechain-agent.jsonl": (1, 1, 11, 374_761),
    "codex-rollout-compacted.slice.jsonl": (1, 2, 17, 2_138_279),
    "codex-rollout.jsonl": (1, 1, 11, 163_484),
    "inspect-log.json": (3, 3, 6, 959),
    "mini-swe-agent.traj.json": (1, 1, 17, 61_068),
    "opencode-export.json": (1, 1, 11, 134_708),
}
"""Recordings, threads, calls that were billed, and tokens of their prompts."""


@pytest.mark.skipif(not RAW.is_dir(), reason="needs the recorded sessions that CTXFS_TRACES names")
@pytest.mark.parametrize("name", KNOWN)
def test_real_files_give_the_bills_that_stand_in_them(name: str) -> None:
    recordings = load(RAW / name)
    calls = [call for recording in recordings for call in recording.calls]
    billed = sum(call.usage.total_input_tokens for call in calls if call.usage is not None)
    threads = sum(len(recording.threads()) for recording in recordings)
    assert (len(recordings), threads, len(calls), billed) == KNOWN[name]
    assert all(recording.model for recording in recordings)
