"""The tables of "Tool Direct Offload", a test a row."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs.errors import ConfigError, TranscriptError, UnsafePath, WriteFailed
from ctxfs.tools import offload_tool_result, offload_tool_results

pytestmark = pytest.mark.anyio


def read(file: str) -> str:
    return Path(file).read_bytes().decode("utf-8", "surrogatepass")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def below_home(folder: Path) -> str:
    return os.path.relpath(folder, Path.home())


def mode(path: str | Path) -> int:
    return Path(path).stat().st_mode & 0o777


def result_message(content: Any, tool_use_id: str = "toolu_xyz", **extra: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content, **extra}
    return {"role": "user", "content": [block]}


def content_of(message: dict[str, Any]) -> Any:
    return message["content"][0]["content"]


LONG = "line of output\n" * 100


async def test_uc_001_text_is_written_and_referred_to(tmp_path: Path) -> None:
    done = await offload_tool_result(result_message(LONG), session_id="session-abc123", output_dir=tmp_path)
    assert done.file == str(tmp_path / "session-abc123" / "toolu_xyz.md")
    assert read(done.file) == LONG
    assert content_of(done.message) == f"[Tool result offloaded to file: {done.file}]"


async def test_uc_002_blocks_are_written_as_compact_json(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "Grüße 🎉\n" * 200}, {"type": "text", "text": '"quoted"'}]
    done = await offload_tool_result(result_message(blocks), session_id="s", output_dir=tmp_path)
    written = read(done.file)
    assert written == json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))
    assert content_of(done.message) == f"[Tool result offloaded to file: {done.file}]"
    assert done.freed_chars == len(written) - len(content_of(done.message))


async def test_uc_003_a_failed_write_raises_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a file where the directory would be")
    message = result_message(LONG)
    with pytest.raises(WriteFailed) as raised:
        await offload_tool_result(message, session_id="s", output_dir=tmp_path)
    assert isinstance(raised.value.__cause__, OSError)
    assert message == result_message(LONG)


class RecordingWriter:
    def __init__(self) -> None:
        self.written: dict[Path, str] = {}

    async def write(self, path: Path, text: str, *, overwrite: bool) -> None:
        self.written[path] = text


class Failing:
    def __init__(self, reason: OSError) -> None:
        self.reason = reason

    async def write(self, path: Path, text: str, *, overwrite: bool) -> None:
        raise self.reason


async def test_f_001_the_writer_is_injected(tmp_path: Path) -> None:
    writer = RecordingWriter()
    done = await offload_tool_result(result_message(LONG), session_id="s", output_dir=tmp_path, writer=writer)
    assert writer.written == {tmp_path / "s" / "toolu_xyz.md": LONG}
    assert not (tmp_path / "s").exists()
    assert done.freed_chars == len(LONG) - len(content_of(done.message))


@pytest.mark.parametrize(
    "reason", [OSError(28, "No space left on device"), PermissionError(13, "Permission denied")], ids=["full", "denied"]
)
async def test_f_001_error_of_the_injected_writer_is_the_cause(reason: OSError, tmp_path: Path) -> None:
    message = result_message(LONG)
    with pytest.raises(WriteFailed, match=str(reason.strerror)) as raised:
        await offload_tool_result(message, session_id="s", output_dir=tmp_path, writer=Failing(reason))
    assert raised.value.__cause__ is reason
    assert content_of(message) == LONG


@pytest.mark.parametrize("output_dir", ["/proc/none/of/this", "nul\0"])
async def test_f_001_error_a_path_that_cannot_be(output_dir: str) -> None:
    with pytest.raises(WriteFailed) as raised:
        await offload_tool_result(result_message(LONG), session_id="s", output_dir=output_dir)
    assert raised.value.__cause__ is not None


async def test_f_001_state_each_call_is_independent(tmp_path: Path) -> None:
    done = [
        await offload_tool_result(result_message(text), session_id=session_id, output_dir=tmp_path)
        for text, session_id in ((LONG, "one"), (LONG, "two"), ("other", "three"))
    ]
    assert [Path(one.file).relative_to(tmp_path).as_posix() for one in done] == [
        "one/toolu_xyz.md",
        "two/toolu_xyz.md",
        "three/toolu_xyz.md",
    ]
    assert [read(one.file) for one in done] == [LONG, LONG, "other"]


async def test_f_001_no_threshold_of_its_own(tmp_path: Path) -> None:
    done = await offload_tool_result(result_message("tiny"), session_id="s", output_dir=tmp_path)
    assert read(done.file) == "tiny"
    assert done.freed_chars == 4 - len(content_of(done.message)) < 0


async def test_f_001_a_repeated_id_overwrites(tmp_path: Path) -> None:
    first = await offload_tool_result(result_message("first"), session_id="s", output_dir=tmp_path)
    second = await offload_tool_result(result_message("second"), session_id="s", output_dir=tmp_path)
    assert first.file == second.file
    assert read(second.file) == "second"
    assert names_in(tmp_path / "s") == ["toolu_xyz.md"]


async def test_f_001_a_message_that_refers_to_its_file_does_not_overwrite_it(tmp_path: Path) -> None:
    first = await offload_tool_result(result_message(LONG), session_id="s", output_dir=tmp_path)
    again = await offload_tool_result(first.message, session_id="s", output_dir=tmp_path)
    assert again.message == first.message
    assert again.message is not first.message
    assert (again.file, again.freed_chars) == (first.file, 0)
    assert read(first.file) == LONG
    await anyio.Path(first.file).unlink()
    lost = await offload_tool_result(first.message, session_id="s", output_dir=tmp_path)
    assert read(lost.file) == content_of(first.message), "there is nothing else that could be kept"


async def test_f_001_missing_content_is_empty_text(tmp_path: Path) -> None:
    message = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}
    done = await offload_tool_result(message, session_id="s", output_dir=tmp_path)
    assert read(done.file) == ""


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "just text"},
        {"role": "user", "content": [{"type": "text", "text": "no result"}]},
        {"role": "user", "content": []},
        {"role": "user"},
        {"role": "user", "content": [*result_message("a", "a")["content"], *result_message("b", "b")["content"]]},
        {"role": "user", "content": [{"type": "tool_result", "content": "no id"}]},
        result_message(12),
        None,
        "text",
        [result_message("a", "a")],
        result_message([{"type": "text", "text": b"x"}]),
    ],
)
async def test_f_001_not_exactly_one_result_is_an_error(message: Any, tmp_path: Path) -> None:
    with pytest.raises(TranscriptError):
        await offload_tool_result(message, session_id="s", output_dir=tmp_path)
    assert not names_in(tmp_path)


async def test_f_002_directories_are_made(tmp_path: Path) -> None:
    output_dir = tmp_path / "a" / "b"
    done = await offload_tool_result(result_message(LONG), session_id="session-abc123", output_dir=output_dir)
    assert Path(done.file) == output_dir / "session-abc123" / "toolu_xyz.md"


async def test_f_002_a_relative_directory_gives_an_absolute_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = await offload_tool_result(result_message(LONG), session_id="s", output_dir=".offload")
    assert done.file == str(tmp_path / ".offload" / "s" / "toolu_xyz.md")


@pytest.mark.parametrize("session_id", [None, 5])
async def test_f_002_a_session_id_that_is_no_text(session_id: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="session_id"):
        await offload_tool_result(result_message(LONG), session_id=session_id, output_dir=tmp_path)


async def test_f_002_a_tilde_is_the_home_directory(tmp_path: Path) -> None:
    done = await offload_tool_result(result_message(LONG), session_id="s", output_dir=f"~/{below_home(tmp_path)}")
    assert read(done.file) == read(str(tmp_path / "s" / "toolu_xyz.md")) == LONG


@pytest.mark.parametrize("name", ["toolu with spaces", "Ünïcode", ".dot", "a.b", "x" * 252])
async def test_f_002_a_plain_name_is_used_as_it_is(name: str, tmp_path: Path) -> None:
    done = await offload_tool_result(result_message(LONG, name), session_id=name, output_dir=tmp_path)
    assert Path(done.file) == tmp_path / name / f"{name}.md"


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", "/abs", "a\\b", "nul\0", "x" * 253, "\ud800"])
@pytest.mark.parametrize("where", ["session_id", "tool_use_id"])
async def test_f_002_any_other_name_is_a_typed_error(name: str, where: str, tmp_path: Path) -> None:
    if where == "session_id" and len(name) == 253:
        name *= 2
    ids = {"session_id": "s", "tool_use_id": "t", where: name}
    with pytest.raises(UnsafePath, match=rf"as {where} cannot name (a|one) file: "):
        await offload_tool_result(
            result_message(LONG, ids["tool_use_id"]), session_id=ids["session_id"], output_dir=tmp_path
        )
    assert not names_in(tmp_path)


async def test_f_003_the_input_is_not_changed_and_the_output_is_a_deep_copy(tmp_path: Path) -> None:
    message = result_message([{"type": "text", "text": LONG}], is_error=True)
    message["content"].insert(0, {"type": "text", "text": "before"})
    before = copy.deepcopy(message)
    done = await offload_tool_result(message, session_id="s", output_dir=tmp_path)
    done.message["content"][0]["text"] = "changed by the caller"
    assert message == before
    assert done.message["content"][1]["is_error"] is True


async def test_f_004_the_simple_call_needs_no_writer(tmp_path: Path) -> None:
    done = await offload_tool_result(result_message(LONG), session_id="s", output_dir=str(tmp_path))
    assert read(done.file) == LONG


async def test_content_that_is_no_valid_unicode_is_kept(tmp_path: Path) -> None:
    done = await offload_tool_result(result_message("a\udc80b"), session_id="s", output_dir=tmp_path)
    assert read(done.file) == "a\udc80b"


async def test_files_and_directories_are_private(tmp_path: Path) -> None:
    done = await offload_tool_result(result_message(LONG), session_id="s", output_dir=tmp_path / "out")
    assert mode(done.file) == 0o600
    assert mode(tmp_path / "out" / "s") == 0o700


async def test_a_plain_function_writes_too(tmp_path: Path) -> None:
    class Writer:
        def write(self, path: Path, text: str, *, overwrite: bool) -> None:
            path.with_name("seen").parent.mkdir(parents=True)
            path.write_text(f"{overwrite} {text}")

    done = await offload_tool_result(result_message(LONG), session_id="s", output_dir=tmp_path, writer=Writer())
    assert read(done.file) == f"True {LONG}"


class TwoArguments:
    async def write(self, path: Path, text: str) -> None:
        raise AssertionError("it was called")


class NoFunction:
    write = None


@pytest.mark.parametrize("writer", [TwoArguments(), NoFunction(), object(), "w"])
async def test_a_writer_that_cannot_be_called_is_refused_before_anything_is_written(
    tmp_path: Path, writer: Any
) -> None:
    for call in (
        offload_tool_result(result_message(LONG), session_id="s", output_dir=tmp_path, writer=writer),
        offload_tool_results([result_message(LONG)], output_dir=tmp_path, writer=writer),
    ):
        with pytest.raises(ConfigError, match=r"write\(path, text, \*, overwrite\)"):
            await call
    assert names_in(tmp_path) == []


async def test_of_parallel_results_one_is_offloaded_after_the_other(tmp_path: Path) -> None:
    message = {
        "role": "user",
        "content": [*result_message("a" * 99, "t1")["content"], *result_message(LONG, "t2")["content"]],
    }
    with pytest.raises(TranscriptError, match="2 tool results: say which one with tool_use_id"):
        await offload_tool_result(message, session_id="s", output_dir=tmp_path)
    with pytest.raises(TranscriptError, match="0 tool results of call 't3'"):
        await offload_tool_result(message, session_id="s", output_dir=tmp_path, tool_use_id="t3")
    assert names_in(tmp_path) == []
    done = await offload_tool_result(message, session_id="s", output_dir=tmp_path, tool_use_id="t2")
    assert (read(done.file), done.message["content"][0]) == (LONG, message["content"][0])
    both = await offload_tool_result(done.message, session_id="s", output_dir=tmp_path, tool_use_id="t1")
    assert [block["content"] for block in both.message["content"]] == [
        f"[Tool result offloaded to file: {tmp_path / 's' / name}]" for name in ("t1.md", "t2.md")
    ]
