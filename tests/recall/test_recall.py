"""A model finds everything that was ever in its session, in few calls, whatever was evicted or summarized."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Context, ContextFileSystem
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.session import erase
from ctxfs.session.records import ContentRemoved
from ctxfs.tools import Tool, ToolResult
from ctxfs.tools.recall.tools import MAX_NOTE_CHARS, MAX_NOTES, recall_tools
from planted_facts import plant

pytestmark = pytest.mark.anyio


def reply(call_id: str, name: str, **arguments: Any) -> AssistantMessage:
    return AssistantMessage(({"type": "tool_use", "id": call_id, "name": name, "input": arguments},))


class Model:
    """Calls the tools of a session as a model does."""

    def __init__(self, fs: ContextFileSystem, **settings: Any) -> None:
        self.tools: dict[str, Tool] = {tool.name: tool for tool in recall_tools(fs, **settings)}

    async def __call__(self, name: str, **arguments: Any) -> str:
        result = await self.run(name, **arguments)
        assert not result.is_error, result.text
        return result.text

    async def run(self, name: str, **arguments: Any) -> ToolResult:
        return await self.tools[name].run(arguments)


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Context]:
    async with Context(session_id="s", root_path=tmp_path, keep_recent={"Bash": 1}) as context:
        await context.add(UserMessage("The deadline is Thursday, says Ωmega."))
        for n in range(1, 6):
            await context.add(reply(f"c{n}", "Bash", command=f"cat report_{n}.txt"))
            lines = [f"report {n} line {line} of many words" for line in range(1, 400)]
            lines[200] = f"the port of service_{n} is {8000 + n}"
            await context.add(ToolMessage(f"c{n}", "Bash", "\n".join(lines)))
            await context.evict()
        await context.add(AssistantMessage("All read."))
        yield context


@pytest.fixture
def model(context: Context) -> Model:
    return Model(context.fs)


async def test_words_find_what_left_with_its_item_call_and_line(model: Model) -> None:
    found = await model("history_search", query="port service_2")
    assert found.splitlines()[0] == "c2:201 (call 3, tool_result of Bash): the port of service_2 is 8002"


async def test_words_find_what_is_still_there(model: Model) -> None:
    assert "msg_001:1 (call 1, user_message): The deadline" in await model("history_search", query="DEADLINE")
    assert "ωmega" in (await model("history_search", query="ωmega")).casefold()
    assert "c5:201" in await model("history_search", query="8005")


async def test_a_pattern_finds_lines_in_order(model: Model) -> None:
    found = await model("history_search", query=r"is 800[1-9]$", regex=True)
    assert [line.split(":")[0] for line in found.splitlines()[:-1]] == ["c1", "c2", "c3", "c4", "c5"]
    assert "msg_001:1" in await model("history_search", query="dEADLINE", regex=True, ignore_case=True)


async def test_where_is_searched_can_be_said(model: Model) -> None:
    pattern = {"query": r"is 800\d", "regex": True}
    assert "c3:201" in await model("history_search", **pattern, item="c3")
    assert "c1" not in await model("history_search", **pattern, item="c3")
    assert (await model("history_search", **pattern, first_call=3, last_call=4)).count("\n") == 2
    assert "nothing is found" in await model("history_search", **pattern, tool="other")
    assert "c3" in await model("history_search", query="port", item="c3")
    assert "c2" not in await model("history_search", query="port", item="c3")


async def test_a_search_goes_on_where_it_stopped(model: Model) -> None:
    seen: list[str] = []
    more: dict[str, int] = {}
    for _ in range(40):
        found = await model("history_search", query="line 7 ", regex=True, max_matches=1, **more)
        *rows, footer = found.splitlines()
        seen += [row.split(" ")[0] for row in rows]
        if "skip=" not in footer:
            break
        more = {
            name: int(footer.partition(f"{name}=")[2].split(";")[0].split(",")[0].rstrip("]"))
            for name in ("skip", "offset")
            if f"{name}=" in footer
        }
    assert seen == [f"c{n}:{line}" for n in range(1, 6) for line in (7,)]
    first = await model("history_search", query="port", max_matches=2)
    assert "more: skip=2" in first
    second = await model("history_search", query="port", max_matches=2, skip=2)
    assert not set(first.splitlines()[:2]) & set(second.splitlines()[:2])


async def test_a_filter_is_not_lost_behind_better_matches_elsewhere(tmp_path: Path) -> None:
    async with Context(session_id="s", root_path=tmp_path) as context:
        await context.add(UserMessage("Look."))
        await context.add(reply("c1", "Bash", command="cat all.log"))
        await context.add(ToolMessage("c1", "Bash", "port port port\n" * 20 * 600))
        await context.add(reply("c2", "Read", file_path="notes.md"))
        await context.add(ToolMessage("c2", "Read", "so many words stand around the port that it ranks last\n"))
        model = Model(context.fs)
        assert (await model("history_search", query="port", tool="Read")).startswith("c2:1 ")
        assert (await model("history_search", query="port", first_call=3)).startswith("c2:1 ")


async def test_words_are_found_without_their_accents_and_shown_where_they_stand(tmp_path: Path) -> None:
    async with Context(session_id="s", root_path=tmp_path) as context:
        await context.add(UserMessage("Meet at the Café Größe.\n" + "ß" * 900 + " here is the key"))
        model = Model(context.fs)
        for query in ("cafe", "CAFÉ", "grösse"):
            assert "Meet at the Café" in await model("history_search", query=query), query
        assert "here is the key" in await model("history_search", query="key")


@pytest.mark.parametrize("other", ["ß" * 400, "a\u0301" * 400])
async def test_a_word_is_shown_where_the_line_before_it_has_another_length_without_its_case_and_accents(
    other: str, tmp_path: Path
) -> None:
    async with Context(session_id="s", root_path=tmp_path) as context:
        for text in (f"{other} needle {'x' * 400}", f"{'x' * 400} pin {other}"):
            await context.add(UserMessage(text), AssistantMessage("ok"))
        model = Model(context.fs)
        assert "needle" in await model("history_search", query="Needle")
        assert "pin" in (await model("history_search", query="pin")).splitlines()[0]


@pytest.mark.parametrize("stays", [True, False])
async def test_a_word_far_along_a_long_line_is_found_and_read(tmp_path: Path, stays: bool) -> None:
    rows = [f'{{"id": {n}, "name": "service_{n:04}", "port": {8000 + n}}}' for n in range(150 if stays else 3_000)]
    text, item = f"first\n[{', '.join(rows)}]\nlast\n", "msg_001" if stays else "c1"
    async with Context(session_id="s", root_path=tmp_path) as context:
        await context.add(UserMessage(text if stays else "Look."))
        if not stays:
            await context.add(reply("c1", "Bash", command="curl services.json"))
            await context.add(ToolMessage("c1", "Bash", text))
        assert (item in context.fs.state.stored) != stays
        model = Model(context.fs)
        for n in (3, 44, 117, len(rows) - 1):
            found = (await model("history_search", query=f"id name port service_{n:04}")).splitlines()[0]
            assert f"service_{n:04}" in found, n
            where = found.partition("char_offset=")[2].partition(")")[0]
            assert found.startswith(f"{item}:2 (")
            page = await model("history_read", item=item, offset=2, char_offset=int(where or 0))
            assert f'"port": {8000 + n}' in page
        assert f"{item}:3 " in await model("history_search", query="last")
        found = await model("history_search", query="service_0117", regex=True)
        where = found.partition("char_offset=")[2].partition(")")[0]
        assert "service_0117" in await model("history_read", item=item, line=2, char_offset=int(where))


async def test_a_page_is_continued_as_its_end_says(model: Model) -> None:
    page = await model("history_read", item="c2", offset=200, lines=2)
    assert page.splitlines()[-1] == "[lines 200-201 of 399; next: offset=202]"
    assert "the port of service_2 is 8002" in page
    assert "report 2 line 203 of" in await model("history_read", item="c2", offset=202, lines=2)


async def test_around_a_hit(model: Model) -> None:
    page = await model("history_read", item="c2", line=201, lines=5)
    assert [line for line in page.splitlines() if "8002" in line]
    assert "report 2 line 200 of" in page
    assert "report 2 line 190 of" not in page
    inline = await model("history_read", item="msg_001")
    assert "The deadline is Thursday" in inline


async def test_the_conversation_as_it_was(model: Model) -> None:
    text = await model("history_calls", first=1, last=2)
    assert text.splitlines()[0] == "== call 1"
    assert "The deadline is Thursday" in text
    assert 'Bash(command="cat report_1.txt")' in text
    assert "report 1 line 1 of many words" in text, "it was evicted since"
    assert "report 2 line" not in text, "that came at call 3"
    assert text.index("== call 1") < text.index("== call 2")
    assert "[calls 1-2 of 6;" in text


async def test_an_item_that_does_not_fit_is_named_all_the_same(tmp_path: Path) -> None:
    """In the first call: the model reads it with history_read, by its id."""
    async with Context(session_id="s", root_path=tmp_path) as context:
        await context.add(UserMessage("0123456789" * 80))
        shown = await Model(context.fs, max_tokens=200)("history_calls", first=1)
        assert shown.splitlines() == [
            "== call 1",
            "-- msg_001 (user_message)",
            "…",
            "[calls 1-1 of 0; history_read shows whole items]",
        ]


async def test_what_the_tools_show_is_not_found_again(context: Context, model: Model) -> None:
    await context.add(reply("h1", "history_search", query="service_2"))
    await context.add(ToolMessage("h1", "history_search", await model("history_search", query="service_2 unheard")))
    assert "h1" not in await model("history_search", query="service_2")
    assert "nothing" in await model("history_search", query="unheard")
    assert "nothing" in await model("history_search", query="unheard", regex=True)


async def test_all_facts_are_found_after_summaries_and_a_restart(tmp_path: Path) -> None:
    planted = await plant(tmp_path, "facts", facts=120)
    assert planted.compactions >= 1
    async with ContextFileSystem("facts", root_path=tmp_path, read_only=True) as fs:
        model = Model(fs, notes=False)
        assert "note" not in model.tools
        for fact in planted.facts:
            found = await model("history_search", query=fact.question, max_matches=3)
            assert fact.answer in found.splitlines()[0]
        assert "[Summary of" in await model("history_search", query="Summary earlier messages", max_matches=50)


async def test_the_dashboard(context: Context, model: Model) -> None:
    await model("note", text="Ask about the deadline")
    status = await model("context_status")
    tokens = sum(item.token_count for item in context.items)
    assert status.startswith(f"Context: {tokens:,} tokens (")
    assert status.splitlines()[0].endswith(f" in {len(context.items)} items; 6 calls so far.")
    assert "  1. Ask about the deadline" in status
    assert "c5 (tool_result of Bash):" in status
    assert ", since call 6" in status
    assert "Left the context: 4 items" in status
    assert "c4 (tool_result of Bash):" in status
    assert "of call 5, left after call 5" in status


async def test_notes_outlive_everything(context: Context, model: Model, tmp_path: Path) -> None:
    assert "note 1 is written" in await model("note", text="first")
    assert "note 2 is written" in await model("note", text="second")
    await model("note", text="better", number=1)
    assert "note 2 is removed; there are 1" in await model("note", text="", number=2)
    await context.close()
    async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
        assert fs.state.notes == {1: "better"}
        assert "  1. better" in await Model(fs)("context_status")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("note", {"text": "x" * (MAX_NOTE_CHARS + 1)}, "at most"),
        ("note", {"text": ""}, "needs a text"),
        ("note", {"text": "x", "number": 7}, "no note 7"),
        ("history_search", {"query": "?!"}, "no words"),
        ("history_search", {"query": "(", "regex": True}, "RE2"),
        ("history_search", {"query": "x", "item": "other"}, "other"),
        ("history_read", {"item": "../../etc/passwd"}, "passwd"),
        ("history_read", {"item": "c1", "line": 9_999}, "past the end"),
        ("history_read", {"item": "c1", "line": 3, "offset": 3}, "one of them"),
        ("history_read", {"item": "msg_001", "line": 9_999}, "past the end"),
        ("history_calls", {"first": 9}, "6 times"),
        ("history_calls", {"first": 3, "last": 2}, "6 times"),
    ],
    ids=str,
)
async def test_wrong_use_is_said_to_the_model(model: Model, name: str, arguments: dict[str, Any], said: str) -> None:
    result = await model.run(name, **arguments)
    assert result.is_error
    assert said in result.text


async def test_there_is_no_room_for_any_number_of_notes(model: Model) -> None:
    for n in range(MAX_NOTES):
        await model("note", text=f"note {n}")
    assert (await model.run("note", text="one more")).is_error
    assert len((await model("context_status")).splitlines()) < MAX_NOTES + 40


@pytest.mark.parametrize("name", ["history_search", "history_calls", "history_read", "context_status"])
async def test_every_result_is_bounded(context: Context, name: str) -> None:
    await context.add(UserMessage("word " * 20_000 + "\n" + "word\n" * 5_000))
    model = Model(context.fs, max_tokens=300)
    arguments: dict[str, dict[str, Any]] = {
        "history_search": {"query": "word|line", "regex": True, "max_matches": 100},
        "history_calls": {"first": 1, "last": 7},
        "history_read": {"item": context.items[-1].id, "lines": 400},
        "context_status": {},
    }
    text = await model(name, **arguments[name])
    assert len(text) // 4 < 600
    assert len(await model("history_search", query="word line", max_matches=100)) // 4 < 600


async def test_an_erased_content_is_forgotten_also_by_tools_that_are_in_use(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, window=None) as context:
        await context.add(UserMessage("the password is correct horse"), AssistantMessage("thanks"))
    async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
        model = Model(fs)
        assert "correct horse" in await model("history_search", query="password")
        await erase("s", ["msg_001"], root_path=tmp_path)
        assert "horse" not in await model("history_search", query="password")
        said = await model.run("history_read", item="msg_001")
        assert said.is_error
        assert "removed on" in said.text


async def test_what_was_removed_on_purpose_says_so(context: Context, model: Model) -> None:
    assert "c2:201" in await model("history_search", query="service_2 port")
    stored = context.fs.state.stored["c2"]
    tombstone = ContentRemoved.of(stored, removed_at=0, by="a test", reason="it is old")
    await context.fs.writer.journal.remove([tombstone])
    assert "c2" not in await model("history_search", query="service_2 port")
    assert "c2 cannot be read" in await model("history_search", query="service_2", regex=True)
    said = await model.run("history_read", item="c2")
    assert said.is_error
    assert "removed on 1970-01-01 by a test" in said.text
    assert "removed on 1970-01-01" in await model("history_calls", first=3)
    assert "c3:201" in await Model(context.fs)("history_search", query="service_3 port"), "an index that is made anew"
