"""The tables of "Agent 上下文卸载模块", a test a row."""

import asyncio
import copy
import json
import os
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import ConfigError, TranscriptError, UnsafePath, WriteFailed
from ctxfs.storage.threads import run_to_completion
from ctxfs.tools import DiskFileWriter, OffloadedMessages, offload_tool_results
from patience import HANGS_S

pytestmark = pytest.mark.anyio


def read(file: str) -> str:
    return Path(file).read_bytes().decode("utf-8", "surrogatepass")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def result(content: Any, tool_use_id: str = "toolu_01abc") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def below_here(folder: Path) -> str:
    return os.path.relpath(folder)


def contents(done: OffloadedMessages) -> list[Any]:
    return [b["content"] for m in done.messages for b in m["content"] if b["type"] == "tool_result"]


CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_01abc", "name": "ls", "input": {}}]}
BIG, SMALL = "x" * 250, "small"


async def test_uc_001_a_large_result_leaves(tmp_path: Path) -> None:
    done = await offload_tool_results([CALL, user(result(BIG))], output_dir=tmp_path)
    assert contents(done) == ["[Content offloaded to: ./tool-result-toolu_01abc.md]"]
    assert done.files == [str(tmp_path / "tool-result-toolu_01abc.md")]
    assert read(done.files[0]) == BIG
    assert (done.offloaded_count, done.freed_chars) == (1, 250)


async def test_uc_002_a_small_result_stays(tmp_path: Path) -> None:
    message = user(result(SMALL))
    done = await offload_tool_results([message], output_dir=tmp_path / "out")
    assert done.messages[0] is message
    assert (done.offloaded_count, done.freed_chars, done.files) == (0, 0, [])
    assert not (tmp_path / "out").exists()


async def test_uc_003_only_the_large_ones_leave(tmp_path: Path) -> None:
    messages = [
        CALL,
        user(result(BIG, "a"), {"type": "text", "text": "hi"}, result(SMALL, "b")),
        user(result(BIG, "c")),
    ]
    done = await offload_tool_results(messages, output_dir=tmp_path)
    assert contents(done) == [
        "[Content offloaded to: ./tool-result-a.md]",
        SMALL,
        "[Content offloaded to: ./tool-result-c.md]",
    ]
    assert done.messages[0] is CALL
    assert done.messages[1]["content"][1] == {"type": "text", "text": "hi"}
    assert (done.offloaded_count, done.freed_chars) == (2, 500)


async def test_uc_004_without_results_nothing_happens(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "x" * 500},
        CALL,
        {"role": "assistant", "content": [{"type": "text"}]},
    ]
    done = await offload_tool_results(messages, output_dir=tmp_path / "out")
    assert all(new is old for new, old in zip(done.messages, messages, strict=True))
    assert not (tmp_path / "out").exists()


async def test_f_001_from_the_earliest_on(tmp_path: Path) -> None:
    texts = [letter * 100 for letter in "abcd"]
    messages = [user(result(texts[0], "id")), CALL, user(result(texts[1], "x"), result(texts[2], "id"))]
    done = await offload_tool_results([*messages, user(result(texts[3], "id"))], output_dir=tmp_path)
    names = ["tool-result-id.md", "tool-result-x.md", "tool-result-id-1.md", "tool-result-id-2.md"]
    assert [Path(f).name for f in done.files] == names
    assert [read(f) for f in done.files] == texts


async def test_f_001_only_tool_results_leave(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "a", "name": "Write", "input": {"text": BIG}}
    messages = [{"role": "assistant", "content": [{"type": "text", "text": BIG}, call]}, user({"type": "image"}, BIG)]
    done = await offload_tool_results(messages, output_dir=tmp_path / "out")
    assert all(new is old for new, old in zip(done.messages, messages, strict=True))
    assert not (tmp_path / "out").exists()


async def test_f_001_state_each_call_is_independent(tmp_path: Path) -> None:
    message = user(result(BIG, "id"))
    first = await offload_tool_results([message], output_dir=tmp_path / "one")
    second = await offload_tool_results([message], output_dir=tmp_path / "two")
    assert contents(first) == contents(second) == ["[Content offloaded to: ./tool-result-id.md]"]


async def test_f_001_state_the_list_is_not_changed_and_nothing_else_is_written(tmp_path: Path) -> None:
    messages = [user(result(BIG, "id")), user(result(SMALL))]
    before, objects = copy.deepcopy(messages), [*messages]
    done = await offload_tool_results(messages, output_dir=tmp_path / "out")
    assert done.messages is not messages
    assert messages == before
    assert all(now is then for now, then in zip(messages, objects, strict=True))
    assert names_in(tmp_path) == ["out"]
    assert names_in(tmp_path / "out") == ["tool-result-id.md"]


async def test_f_001_the_directory_is_made(tmp_path: Path) -> None:
    done = await offload_tool_results([user(result(BIG))], output_dir=tmp_path / "a" / "b" / "c")
    assert Path(done.files[0]).parent == tmp_path / "a" / "b" / "c"
    again = await offload_tool_results([user(result(BIG, "z"))], output_dir=tmp_path / "a" / "b" / "c")
    assert read(again.files[0]) == BIG


async def test_f_001_a_repeated_id_gets_a_number(tmp_path: Path) -> None:
    texts = [letter * 100 for letter in "abc"]
    done = await offload_tool_results([user(*(result(text, "id") for text in texts))], output_dir=tmp_path)
    assert [Path(f).name for f in done.files] == ["tool-result-id.md", "tool-result-id-1.md", "tool-result-id-2.md"]
    assert [read(f) for f in done.files] == texts
    assert contents(done)[2] == "[Content offloaded to: ./tool-result-id-2.md]"


async def test_f_001_a_repeated_id_with_equal_content_gets_a_number_too(tmp_path: Path) -> None:
    done = await offload_tool_results([user(result(BIG, "id"), result(BIG, "id"))], output_dir=tmp_path)
    assert [Path(f).name for f in done.files] == ["tool-result-id.md", "tool-result-id-1.md"]


async def test_f_001_a_name_of_another_id_is_skipped(tmp_path: Path) -> None:
    texts = {"first": "a" * 100, "other": "b" * 100, "repeat": "c" * 100}
    blocks = [result(texts["first"], "id"), result(texts["other"], "id-1"), result(texts["repeat"], "id")]
    done = await offload_tool_results([user(*blocks)], output_dir=tmp_path)
    assert [Path(f).name for f in done.files] == ["tool-result-id.md", "tool-result-id-1.md", "tool-result-id-2.md"]
    assert [read(f) for f in done.files] == list(texts.values())


async def test_f_001_ids_that_differ_by_case_alone_do_not_meet(tmp_path: Path) -> None:
    done = await offload_tool_results([user(result("a" * 100, "id"), result("b" * 100, "ID"))], output_dir=tmp_path)
    assert len({f.casefold() for f in done.files}) == 2


async def test_f_001_a_file_with_other_content_is_skipped(tmp_path: Path) -> None:
    taken = tmp_path / "tool-result-id.md"
    taken.write_text("mine")
    done = await offload_tool_results([user(result(BIG, "id"))], output_dir=tmp_path)
    assert [Path(f).name for f in done.files] == ["tool-result-id-1.md"]
    assert taken.read_text() == "mine"


async def test_f_001_a_file_with_other_content_of_the_same_length_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "tool-result-id.md").write_text(BIG[:-1] + "!")
    done = await offload_tool_results([user(result(BIG, "id"))], output_dir=tmp_path)
    assert [Path(f).name for f in done.files] == ["tool-result-id-1.md"]


async def test_f_001_two_calls_at_once_lose_nothing(tmp_path: Path) -> None:
    done: list[OffloadedMessages] = []

    async def offload(text: str) -> None:
        done.append(await offload_tool_results([user(result(text, "id"))], output_dir=tmp_path))

    texts = [letter * 100 for letter in "abcdef"]
    async with anyio.create_task_group() as group:
        for text in texts:
            group.start_soon(offload, text)
    assert sorted(read(one.files[0]) for one in done) == texts


async def test_f_001_a_link_is_skipped_and_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(BIG)
    (tmp_path / "tool-result-id.md").symlink_to(secret)
    done = await offload_tool_results([user(result(BIG, "id"))], output_dir=tmp_path)
    assert [Path(f).name for f in done.files] == ["tool-result-id-1.md"]


async def test_f_001_a_file_with_the_same_content_is_used_again(tmp_path: Path) -> None:
    messages = [user(result("a" * 100, "id"), result("b" * 100, "id"))]
    first = await offload_tool_results(messages, output_dir=tmp_path)
    second = await offload_tool_results(messages, output_dir=tmp_path)
    assert first == second
    assert names_in(tmp_path) == ["tool-result-id-1.md", "tool-result-id.md"]


async def test_f_001_an_empty_list_gives_empty_results(tmp_path: Path) -> None:
    done = await offload_tool_results([], output_dir=tmp_path / "out")
    assert done == OffloadedMessages(messages=[], offloaded_count=0, freed_chars=0, files=[])


async def test_f_001_a_failed_write_raises_with_its_cause(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    messages = [user(result(BIG))]
    before = copy.deepcopy(messages)
    with pytest.raises(WriteFailed) as raised:
        await offload_tool_results(messages, output_dir=blocked)
    assert isinstance(raised.value.__cause__, OSError)
    assert messages == before


@pytest.mark.parametrize(
    "reason", [OSError(28, "No space left on device"), PermissionError(13, "Permission denied")], ids=["full", "denied"]
)
async def test_f_001_a_full_disk_and_a_missing_permission_raise(tmp_path: Path, reason: OSError) -> None:
    class Failing:
        async def write(self, path: Path, text: str, *, overwrite: bool) -> None:
            raise reason

    with pytest.raises(WriteFailed, match=str(reason.strerror)) as raised:
        await offload_tool_results([user(result(BIG))], output_dir=tmp_path, writer=Failing())
    assert raised.value.__cause__ is reason


async def test_f_001_a_name_that_cannot_be_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UnsafePath):
        await offload_tool_results([user(result(BIG, "fine"), result(BIG, "../up"))], output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    small = await offload_tool_results([user(result(SMALL, "../up"))], output_dir=tmp_path / "out")
    assert small.offloaded_count == 0


async def test_f_001_an_id_that_its_number_makes_too_long_is_told_before_anything_is_written(tmp_path: Path) -> None:
    longest = "x" * (255 - len("tool-result-.md"))
    with pytest.raises(UnsafePath):
        await offload_tool_results([user(result(BIG, longest), result(BIG, longest))], output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    once = await offload_tool_results([user(result(BIG, longest))], output_dir=tmp_path / "out")
    assert once.offloaded_count == 1


async def test_f_001_changed_messages_are_deep_copies_others_keep_their_identity(tmp_path: Path) -> None:
    kept, changed = user(result(SMALL)), user({"type": "text", "text": "t"}, result(BIG))
    before = copy.deepcopy(changed)
    done = await offload_tool_results([kept, changed], output_dir=tmp_path)
    assert done.messages[0] is kept
    assert done.messages[1] is not changed
    done.messages[1]["content"][0]["text"] = "changed by the caller"
    assert changed == before


async def test_f_002_exactly_100_goes(tmp_path: Path) -> None:
    assert (await offload_tool_results([user(result("x" * 100))], output_dir=tmp_path)).offloaded_count == 1


async def test_f_002_99_stays(tmp_path: Path) -> None:
    assert (await offload_tool_results([user(result("x" * 99))], output_dir=tmp_path)).offloaded_count == 0


async def test_f_002_empty_content_stays(tmp_path: Path) -> None:
    blocks = [result(""), {"type": "tool_result", "tool_use_id": "none"}, result([])]
    assert (await offload_tool_results([user(*blocks)], output_dir=tmp_path)).offloaded_count == 0


@pytest.mark.parametrize(("length", "count"), [(99, 0), (100, 1)])
async def test_f_002_blocks_are_counted_as_json(length: int, count: int, tmp_path: Path) -> None:
    frame = len('[{"type":"text","text":""}]')
    blocks = [{"type": "text", "text": "y" * (length - frame)}]
    done = await offload_tool_results([user(result(blocks))], output_dir=tmp_path)
    assert (done.offloaded_count, done.freed_chars) == (count, length * count)


@pytest.mark.parametrize(("text", "count"), [("🎉" * 99, 0), ("🎉" * 100, 1)])
async def test_f_002_characters_are_code_points(text: str, count: int, tmp_path: Path) -> None:
    done = await offload_tool_results([user(result(text))], output_dir=tmp_path)
    assert (done.offloaded_count, done.freed_chars) == (count, 100 * count)


async def test_f_002_the_threshold_can_be_set(tmp_path: Path) -> None:
    assert (await offload_tool_results([user(result("ab"))], output_dir=tmp_path, threshold_chars=2)).offloaded_count


@pytest.mark.parametrize("threshold", [-1, "100", None, 1.5])
async def test_f_002_a_threshold_that_is_none(threshold: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="threshold"):
        await offload_tool_results([], output_dir=tmp_path, threshold_chars=threshold)


async def test_f_003_blocks_become_text(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "Grüße " * 30}, {"type": "image", "source": {"type": "base64", "data": "AA=="}}]
    done = await offload_tool_results([user(result(blocks))], output_dir=tmp_path)
    assert contents(done) == ["[Content offloaded to: ./tool-result-toolu_01abc.md]"]
    assert read(done.files[0]) == json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))


async def test_f_003_a_placeholder_longer_than_the_content_stands_all_the_same(tmp_path: Path) -> None:
    long_id = "i" * 200
    done = await offload_tool_results([user(result("x" * 100, long_id))], output_dir=tmp_path)
    assert contents(done) == [f"[Content offloaded to: ./tool-result-{long_id}.md]"]


async def test_f_004_statistics(tmp_path: Path) -> None:
    done = await offload_tool_results([user(result("x" * 100, "a"), result("y" * 150, "b"))], output_dir=tmp_path)
    assert (done.offloaded_count, done.freed_chars) == (2, 250)
    assert done.files == [str(tmp_path / "tool-result-a.md"), str(tmp_path / "tool-result-b.md")]


async def test_f_004_files_are_absolute(tmp_path: Path) -> None:
    done = await offload_tool_results([user(result(BIG, "a"))], output_dir=below_here(tmp_path))
    assert Path(done.files[0]).is_absolute()
    assert read(done.files[0]) == read(str(tmp_path / "tool-result-a.md")) == BIG


async def test_f_005_missing_directories_are_made(tmp_path: Path) -> None:
    done = await offload_tool_results([user(result(BIG, "a"))], output_dir=tmp_path / "x" / "y" / "z")
    assert done.files == [str(tmp_path / "x" / "y" / "z" / "tool-result-a.md")]


async def test_f_005_an_existing_directory_is_no_error(tmp_path: Path) -> None:
    assert (await offload_tool_results([user(result(BIG))], output_dir=tmp_path)).offloaded_count == 1


@pytest.mark.parametrize("output_dir", ["", None, 3, "~nobody-of-this-name/x"])
async def test_f_005_what_is_no_path_is_told(output_dir: Any) -> None:
    with pytest.raises(ConfigError, match="output_dir"):
        await offload_tool_results([user(result(BIG))], output_dir=output_dir)


@pytest.mark.parametrize("tool_use_id", ["i", "i" * 59, "i" * 200, "i-1", "a.md", "(.*)"])
async def test_a_placeholder_is_not_offloaded_again(tool_use_id: str, tmp_path: Path) -> None:
    texts = [letter * 300 for letter in "abc"]
    messages = [user(result(texts[0], tool_use_id), result(texts[1], tool_use_id)), user(result(texts[2], tool_use_id))]
    offload = partial(offload_tool_results, output_dir=tmp_path, threshold_chars=10)
    first = await offload(messages)
    new = user(result("new" * 100, tool_use_id))
    second = await offload([*first.messages, new])
    assert all(now is then for now, then in zip(second.messages[:2], first.messages, strict=True))
    assert (second.offloaded_count, second.freed_chars) == (1, 300)
    assert [read(f) for f in (*first.files, *second.files)] == [*texts, "new" * 100]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: f"{text} ",
        lambda text: f" {text}",
        lambda text: text.replace(".md", "-0.md"),
        lambda text: text.replace(".md", "-1x.md"),
        lambda text: text.replace("iii", "jjj", 1),
    ],
)
async def test_what_only_looks_like_a_placeholder_is_offloaded(change: Callable[[str], str], tmp_path: Path) -> None:
    text = change(f"[Content offloaded to: ./tool-result-{'i' * 100}.md]")
    done = await offload_tool_results([user(result(text, "i" * 100))], output_dir=tmp_path)
    assert [read(file) for file in done.files] == [text]


async def test_a_result_without_an_id_is_told(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError):
        await offload_tool_results([user({"type": "tool_result", "content": BIG})], output_dir=tmp_path)


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(3000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "messages",
    [
        None,
        "text",
        "",
        b"",
        user(result(BIG)),
        iter([user(result(BIG))]),
        [None],
        ["text"],
        [[user(result(BIG))]],
        [user(result([{"type": "text", "text": b"x"}]))],
        [user(result([{"type": "text", "text": object()}]))],
        [user(result([{1: BIG}]))],
        [user(result([10**5000]))],
        [user(result(deep()))],
        [user(result(BIG), {"type": "text", "text": deep()})],
        [user(result(BIG), {"type": "text", "text": threading.Lock()})],
        [user(result(5))],
    ],
    ids=range(17),
)
async def test_what_is_no_message_is_told_before_anything_is_written(messages: Any, tmp_path: Path) -> None:
    if isinstance(messages, list):
        messages = [user(result(BIG, "before")), *messages]
    with pytest.raises(TranscriptError):
        await offload_tool_results(messages, output_dir=tmp_path)
    assert not names_in(tmp_path)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_timeout_that_runs_out_while_a_file_is_written_is_over_when_its_block_is(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        async def write(self, path: Path, text: str, *, overwrite: bool) -> None:
            begun.set()
            await run_to_completion(partial(go_on.wait, HANGS_S))
            await DiskFileWriter().write(path, text, overwrite=overwrite)

    async def run_out(limit: asyncio.Timeout) -> None:
        await asyncio.to_thread(begun.wait, HANGS_S)
        limit.reschedule(0)
        for _ in range(5):
            await asyncio.sleep(0)
        go_on.set()

    async def offload_too_late() -> None:
        async with asyncio.timeout(None) as limit:
            running_out = asyncio.create_task(run_out(limit))
            try:
                await offload_tool_results([user(result(BIG))], output_dir=tmp_path, writer=Slow())
            finally:
                await running_out

    with pytest.raises(TimeoutError):
        await offload_too_late()
    await asyncio.sleep(0)  # a cancellation that is left over would come here


IDS = st.sampled_from(["a", "A", "b", "a-1", "a-2"])
TEXTS = st.sampled_from(["x" * 99, "x" * 100, "y" * 120, "z" * 300])


@given(results=st.lists(st.tuples(IDS, TEXTS), max_size=8))
def test_every_result_can_be_read_back_from_the_file_that_its_placeholder_names(results: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        messages = [user(*(result(text, tool_use_id) for tool_use_id, text in results))]
        done = anyio.run(lambda: offload_tool_results(messages, output_dir=folder))
        restored = [
            (Path(folder) / text.removeprefix("[Content offloaded to: ./").removesuffix("]")).read_text()
            if text.startswith("[Content")
            else text
            for text in contents(done)
        ]
        assert restored == [text for _, text in results]
        assert len(set(done.files)) == done.offloaded_count
        again = anyio.run(lambda: offload_tool_results(messages, output_dir=folder))
        assert again == done
