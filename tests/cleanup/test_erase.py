"""Erasing: no byte of a content is left in its session, all else is as before, and a crash can be made good."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.context import Context, History, Part
from ctxfs.errors import ConfigError, ContentGone, CtxfsError, SessionLocked, UnknownItem
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, UserMessage
from ctxfs.messages.names import TEXT
from ctxfs.session import Erasure, erase, erase_plan, fork_session, prune_session
from ctxfs.session.archive import write_archive
from ctxfs.session.cleanup.contents import remove_contents
from ctxfs.session.cleanup.eraser import Eraser, Held, Quotes, related
from ctxfs.session.entries import archived
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.fingerprint import sha256_of
from ctxfs.session.records import ContentRemoved
from ctxfs.storage import LocalSessions, SessionStores
from ctxfs.storage.threads import run_in_steps
from failing_fs import FailingFileSystem, as_port
from session_items import claimed_item, evicted, make_item, stored_record, tool_result, user_message

pytestmark = pytest.mark.not_measured

SECRET = 's3cr3t-Marker-åß-"quoted"'
KINDS = ("inline", "stored", "evicted", "dropped", "archived", "archived_evicted", "reply", "page", "large", "image")


async def put_in(fs: ContextFileSystem, kind: str, text: str, item_id: str) -> str:
    """An item of this kind that says ``text``, and returns its id."""
    shown = evicted
    if kind == "reply":
        call = {"type": "tool_use", "id": f"{item_id}_call", "name": "Write", "input": {"text": text}}
        reply = claimed_item(fs, AssistantMessage(({"type": "text", "text": text}, call)))
        await fs.writer.add([user_message(fs, "go"), reply, tool_result(fs, "done", f"{item_id}_call", tool="Write")])
        return reply.id
    if kind == "image":
        blocks = ({"type": "text", "text": text}, {"type": "text", "text": "more"})
        item = claimed_item(fs, UserMessage(blocks))
        await fs.writer.add([item])
        return item.id
    content = text if kind == "inline" else f"{text}\n" * (4_000 if kind == "large" else 20)
    item = tool_result(fs, content, item_id)
    if kind == "stored":
        await fs.writer.store([item])
        return item.id
    await fs.writer.add([user_message(fs, "go"), calling(fs, item_id), item])
    if kind in {"evicted", "dropped", "archived_evicted"}:
        gone = shown(fs, item)
        gone = gone.offloaded_to(gone.offload_path, f"[Content offloaded: {text}]", 9, later=(f"short: {text}", 3))
        await fs.writer.evict([(item, gone, "r")])
        item = gone
    if kind == "dropped":
        await fs.writer.remove([list(fs.state.items)[-2], item.id], reason="no room")
    if kind == "page":
        source = ContentRange(item_id=item.id, path="", first_line=1, last_line=2)
        page = replace(tool_result(fs, text, f"{item_id}_page"), source=source)
        await fs.writer.add([calling(fs, page.id), page])
    if kind.startswith("archived"):
        await put_in_archive(fs, [fs.state.items[list(fs.state.items)[-2]], item])
    return item.id


def calling(fs: ContextFileSystem, call_id: str) -> ContextItem:
    return claimed_item(fs, AssistantMessage(({"type": "tool_use", "id": call_id, "name": "Read", "input": {}},)))


async def put_in_archive(fs: ContextFileSystem, items: list[ContextItem]) -> str:
    item_id, name = fs.writer.allocate(ItemType.COMPACTION_SUMMARY, None)
    summary = make_item(item_id, UserMessage("a summary"), kind=ItemType.COMPACTION_SUMMARY, name=name)
    other = user_message(fs, f"another message in {item_id}")
    await fs.writer.add([other])
    held = [*items, other]
    await fs.writer.archive(summary, write_archive(held), [item.id for item in held], before=None, reason="r")
    return item_id


def found_in(directory: Path, text: str) -> list[str]:
    """The files under a directory that have the bytes of a text, as they are or as JSON."""
    forms = {text.encode(), text.encode("unicode_escape"), text.replace('"', '\\"').encode()}
    return [
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and any(form in path.read_bytes() for form in forms)
    ]


async def everything(stores: SessionStores) -> dict[str, Any]:
    """All that session s says: its items, what is stored, and what is in archives; a content that is gone is None."""
    async with ContextFileSystem("s", root_path=stores, read_only=True) as fs:
        said: dict[str, Any] = {f"item {item.id}": item for item in await fs.items()}
        for item_id in fs.state.ids & {*fs.state.stored, *fs.state.removed}:
            try:
                said[f"content {item_id}"] = await fs.load(item_id)
            except ContentGone:
                said[f"content {item_id}"] = None
        for archive in sorted(set(fs.state.archived.values())):
            said.update({f"archived {item.id}": item for item in await archived(fs, archive)})
            said.pop(f"content {archive}", None)
        assert (await fs.verify()).ok
        assert fs.recovery.damages == ()
        return said


def concerns(name: str, plan: Erasure) -> bool:
    return name.split(" ", 1)[1] in {item.item_id for item in plan.items}


@pytest.mark.slow
@pytest.mark.usefixtures("loop_may_block")
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    others=st.lists(st.sampled_from(KINDS), max_size=3),
    layout=st.sampled_from([None, TEXT]),
)
def test_nothing_of_it_is_left_and_all_else_is_as_before(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], others: list[str], layout: Any
) -> None:
    root = tmp_path_factory.mktemp("root")

    async def play() -> None:
        settings = {} if layout is None else {"layout": layout}
        async with ContextFileSystem("s", root_path=root, **settings) as fs:
            asked = list[str]()
            for number, kind in enumerate(others):
                await put_in(fs, kind, f"harmless {number} of {kind}", f"other_{number}")
            for number, kind in enumerate(kinds):
                asked.append(await put_in(fs, kind, SECRET, f"call_{number}"))
        before = await everything(LocalSessions(root))
        size = (root / "s" / "journal.jsonl").stat().st_size
        assert found_in(root / "s", SECRET) or kinds == ["large"]
        plan = await erase("s", asked, root_path=root, by="a test", reason="a password")
        assert plan.quoted_in == ()
        assert found_in(root / "s", SECRET) == []
        assert (root / "s" / "journal.jsonl").read_bytes().index(b'"erased":true') >= size
        after = await everything(LocalSessions(root))
        assert {k: v for k, v in before.items() if not concerns(k, plan)} == {
            k: v for k, v in after.items() if not concerns(k, plan)
        }
        assert all(SECRET not in repr(value) for value in after.values())
        async with Context("s", root_path=root) as context:
            await context.add({"role": "user", "content": "go on"})
            assert context.fs.recovery.clean
            with pytest.raises(ContentGone, match="a password"):
                await context.fs.load(asked[0])
        assert found_in(root / "s", SECRET) == []

    anyio.run(play)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the steps are the same
async def test_a_crash_at_every_step_leaves_what_can_be_finished(tmp_path: Path) -> None:
    root, made = tmp_path / "root", tmp_path / "made"
    async with ContextFileSystem("s", root_path=root) as fs:
        kept = await put_in(fs, "archived", "harmless", "call_0")
        asked = [await put_in(fs, kind, SECRET, f"{kind}_1") for kind in ("inline", "evicted", "archived", "page")]
    before = await everything(LocalSessions(root))
    shutil.copytree(root, made)
    steps, step = 10**9, 0
    while step < steps:
        shutil.rmtree(root)
        shutil.copytree(made, root)
        log = list[str]()
        port = FailingFileSystem(fails=cut_off(step, log))
        try:
            plan = await erase("s", asked, root_path=root, fs=as_port(port))
        except (CtxfsError, OSError):
            async with Context("s", root_path=root) as context:
                shown = {f"item {item.id}": item for item in await context.fs.items()}
                assert kept in context.fs.state.archived
                assert shown.keys() == {name for name in before if name.startswith("item ")}
                assert [
                    name for name in shown if shown[name] != before[name] and not name.endswith(("_1", "_page"))
                ] == []
            plan = await erase("s", asked, root_path=root)
        else:
            steps = step
        assert found_in(root / "s", SECRET) == []
        after = await everything(LocalSessions(root))
        assert {k: v for k, v in before.items() if not concerns(k, plan)} == {
            k: v for k, v in after.items() if not concerns(k, plan)
        }
        step += 1
    assert step > 20


def cut_off(after: int, log: list[str]) -> Callable[[int, str], bool]:
    """Fails every call that changes something, from the ``after``-th on, as if the process had ended there."""
    changing = {"create", "write", "append", "rename", "unlink", "link", "truncate", "make_dir", "sync"}

    def fails(number: int, name: str) -> bool:
        if name in changing:
            log.append(name)
        return name in changing and len(log) > after

    return fails


@pytest.mark.anyio
async def test_what_stays_elsewhere_is_said(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        large, inline = await put_in(fs, "large", SECRET, "call_1"), await put_in(fs, "inline", SECRET * 2, "call_2")
        await fs.writer.add([user_message(fs, f"I saw {SECRET} there"), user_message(fs, "nothing")])
    async with ContextFileSystem("copy", root_path=tmp_path) as fs:
        await put_in(fs, "large", SECRET, "call_9")
    async with ContextFileSystem("unrelated", root_path=tmp_path) as fs:
        await put_in(fs, "inline", "harmless", "call_2")
    forked = await fork_session("s", new_id="forked", root_path=tmp_path)
    await fork_session(forked.session_id, new_id="grandchild", root_path=tmp_path)
    async with ContextFileSystem("s", root_path=tmp_path):
        plan = await erase_plan("s", [large], root_path=tmp_path)
        with pytest.raises(SessionLocked):
            await erase("s", [large], root_path=tmp_path)
    assert plan.quoted_in == (inline, "msg_005")
    assert plan.other_sessions == ("copy", "forked", "grandchild")
    assert (await erase_plan("s", [inline], root_path=tmp_path)).other_sessions == ("forked", "grandchild")
    assert (await erase_plan("grandchild", [inline], root_path=tmp_path)).other_sessions == ("forked",)
    await erase("s", [large], root_path=tmp_path)
    async with ContextFileSystem("forked", root_path=tmp_path) as fs:
        assert SECRET in str(await fs.load(large))
        assert (await fs.verify()).ok


@pytest.mark.anyio
async def test_wrong_input_changes_nothing(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        item_id = await put_in(fs, "stored", SECRET, "call_1")
    with pytest.raises(UnknownItem, match="call_2"):
        await erase("s", [item_id, "call_2"], root_path=tmp_path)
    with pytest.raises(ConfigError, match="ctxfs ls"):
        await erase("s", [], root_path=tmp_path)
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        assert SECRET in str(await fs.load(item_id))
        name = fs.state.stored[item_id].name
    plan = await erase("s", [str(tmp_path / "s" / name)], root_path=tmp_path)
    assert [item.item_id for item in plan.items] == [item_id]
    assert not await anyio.Path(tmp_path / "s" / name).exists()
    again = await erase("s", [item_id], root_path=tmp_path)
    assert again.items == plan.items
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        assert sum(isinstance(record, ContentRemoved) for record in await fs.history()) == 1


@pytest.mark.anyio
async def test_what_was_pruned_is_erased_from_the_journal_too(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        item_id = await put_in(fs, "dropped", SECRET, "call_1")
        await prune_session(fs, undo_s=0, grace_s=0)
    assert found_in(tmp_path / "s", SECRET) == ["journal.jsonl"]
    await erase("s", [item_id], root_path=tmp_path)
    assert found_in(tmp_path / "s", SECRET) == []


@pytest.mark.anyio
async def test_arguments_go_with_their_reply_and_it_with_them(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        kept = claimed_item(fs, AssistantMessage(SECRET * 400), kind=ItemType.TOOL_INPUT, raw_id="c.input")
        call = {"type": "tool_use", "id": "c", "name": "Write", "input": {"text": f"[stored {kept.name}]"}}
        reply = claimed_item(fs, AssistantMessage((call,)))
        await fs.writer.store([kept])
        await fs.writer.add([user_message(fs, "go"), reply, tool_result(fs, "done", "c", tool="Write")])
    for asked in (kept.id, reply.id):
        plan = await erase_plan("s", [asked], root_path=tmp_path)
        assert {item.item_id for item in plan.items} == {kept.id, reply.id}
    await erase("s", [kept.id], root_path=tmp_path)
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        (said,) = [item.message.content for item in await fs.items() if item.id == reply.id]
        assert "removed on" in str(said[0])
        assert said[1:] == ({"type": "tool_use", "id": "c", "name": "Write", "input": {}},)


def test_a_history_of_a_framework_loses_it(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path) as history:
        history.arrive(f"{SECRET}\n" * 20_000, tool="Bash", call_id="c")
    anyio.run(lambda: erase("s", ["c"], root_path=tmp_path))
    assert found_in(tmp_path / "s", SECRET) == []
    with History("s", root_path=tmp_path) as history:
        assert "removed on" in str(history.run_tool("context_read", {"ref": "c"}).content)


@pytest.mark.anyio
async def test_an_archive_leaves_no_checksum_of_what_was_in_it(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        item = user_message(fs, SECRET)
        await fs.writer.add([item])
        archive = await put_in_archive(fs, [item])
        digest = fs.state.stored[archive].digest
    log = tmp_path / "s" / "journal.jsonl"
    assert digest in log.read_text()
    await erase("s", [item.id], root_path=tmp_path)
    assert digest not in log.read_text()
    await erase("s", [item.id], root_path=tmp_path)
    async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
        assert (await fs.verify()).ok
        assert fs.state.stored[archive].digest in log.read_text()


MAIL = "Dear customer,\n" + "This is our usual notice about your account.\n" * 60 + "Your one-time code is {}.\n"


def mails(*contents: str) -> list[Part]:
    parts = list[Part]()
    for number, content in enumerate(contents):
        parts.append(Part("call", {}, (number, "call"), f"c{number}", "mail"))
        parts.append(Part("result", content, (number, "result"), f"c{number}", "mail"))
    return parts


def test_no_checksum_is_left_by_which_a_short_secret_is_found(tmp_path: Path) -> None:
    secret = MAIL.format(471_123)
    with History("h", root_path=tmp_path, keep_recent={"mail": 1}) as history:
        replaced = dict(history.rewrite(mails(secret, "later")))
        assert list(replaced) == [(0, "result")]
    log = tmp_path / "h" / "journal.jsonl"
    assert sha256_of(secret)[:16] in log.read_text()
    anyio.run(lambda: erase("h", ["c0"], root_path=tmp_path))
    assert sha256_of(secret)[:16] not in log.read_text()
    with History("h", root_path=tmp_path, keep_recent={"mail": 1}) as history:
        assert "removed on" in str(history.run_tool("context_read", {"ref": "c0"}).content)
        again = dict(history.rewrite(mails(secret, "later", "last")))
        assert again.keys() == {(0, "result")}  # the framework still had it
        assert history.rewrite(mails(secret, "later", "last")) == again


def part(record_type: str, **values: Any) -> dict[str, Any]:
    return {"type": record_type, **values}


def test_what_is_left_of_each_record() -> None:
    eraser = Eraser(["a"], {"archive": "new"})
    assert eraser(part("decided", kind="call", item_id="a", content={"x": 1}, sha256="abc")) == part(
        "decided", kind="call", item_id="a", content={}, sha256="000"
    )
    placeholder = part("decided", kind="result", item_id="a", content="a placeholder", sha256="abc")
    assert eraser(placeholder)["content"] == "[erased]"
    noted = part("parts_noted", tokens={"abc": 7}, sources={"def": ["a", 1, 2], "123": ["b", 1, 2]})
    assert eraser(noted) == part("parts_noted", tokens={}, sources={"123": ["b", 1, 2]})
    old = part("stored", item_id="archive", digest="old", content_length=9)
    assert eraser(old) == part("stored", item_id="archive", digest="000", content_length=0)
    assert eraser({**old, "digest": "new"}) == {**old, "digest": "new"}
    assert eraser(part("request_sent", status="largest: a"))["status"] == ""
    assert eraser(part("request_sent", status="other"))["status"] == "other"
    assert eraser(part("request_sent")) == part("request_sent")
    run = part("shadowed", original="a {}", again="b {}", rewritten="c {}", age=2)
    assert eraser(run) == part("shadowed", original="", again="", rewritten="", age=2)
    stored = part("stored", item_id="a", digest="abc", content_length=9)
    assert eraser(stored) == part("stored", item_id="a", digest="000", content_length=0)
    labelled = part("stored", item_id="a", digest="abc", content_length=9, metadata={"label": "a secret"})
    assert eraser(labelled)["metadata"] == {}, "also where a program wrote nothing else"
    eraser(part("content_removed", item_id="a", erased=True))
    assert eraser(part("replaced", item_id="a", content="later"))["content"] == "later"
    assert eraser(run) == run


def test_what_quotes_a_line_or_a_long_word_is_found() -> None:
    quotes = Quotes(["password = hunter2-hunter2\nshort\n"])
    assert quotes.found_in("as I read:\n  password = hunter2-hunter2\n")
    assert quotes.found_in("It is hunter2-hunter2.")
    assert not quotes.found_in("a short password = other")
    assert Quotes(["4711\n0815\n"]).found_in("4711\n0815\n"), "an equal text, though all its lines are short"
    assert not Quotes(["done\n"]).found_in("done\n"), "any text may be that"


@pytest.mark.anyio
@pytest.mark.parametrize("erased_one", ["call_1", "call_2", "call_3"])
async def test_what_was_equal_is_named_also_where_a_file_is_gone(tmp_path: Path, erased_one: str) -> None:
    """Its placeholder, an archive or its checksum may be there still, and nothing but the checksums tells."""
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        same = [tool_result(fs, "4711\n" * 500, f"call_{number}") for number in (1, 2, 3)]
        await fs.writer.store([*same, tool_result(fs, "4712\n" * 500, "call_4")])
        await remove_contents(fs, {"call_1": "r", "call_3": "r"}, by="a test")
    others = tuple(item.id for item in same if item.id != erased_one)
    assert (await erase("s", [erased_one], root_path=tmp_path)).quoted_in == others
    assert (await erase("s", list(others), root_path=tmp_path)).quoted_in == (), "what was erased left no checksum"


@pytest.mark.anyio
async def test_the_texts_of_a_journal_are_looked_through_in_one_piece_of_work(tmp_path: Path) -> None:
    """A thread for each of them took three times as long as to look: 14 s of CPU for 20,000 short ones, not 2.5 s."""
    async with Context("s", root_path=tmp_path, window=None, pricing=None) as context:
        await context.add(*(UserMessage(f"the secret is hunter2-hunter2, {number}") for number in range(200)))
        first, *others = (item.id for item in context.items)
    begun = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal begun
        begun += event == "call" and frame.f_code is run_in_steps.__code__

    sys.setprofile(count)
    try:
        plan = await erase_plan("s", [first], root_path=tmp_path)
    finally:
        sys.setprofile(None)
    assert plan.quoted_in == tuple(others)
    assert 0 < begun < 100


def test_arguments_are_found_by_what_their_reply_says_however_it_is_escaped() -> None:
    replies = [f"msg_{n}" for n in range(3)]
    texts = ("see tool_input/log/c0.input.json.", '[{"input": "\\ntool_input/log/c1.input.json"}]', "nothing")
    found = Held(
        items={one: make_item(one, AssistantMessage("done"), 9) for one in replies},
        texts={one: [text] for one, text in zip(replies, texts, strict=True)},
        stored={
            f"c{n}.input": [
                replace(
                    stored_record(f"c{n}.input", item_type=ItemType.TOOL_INPUT),
                    name=f"tool_input/log/c{n}.input.json",
                )
            ]
            for n in range(3)
        },
    )
    assert related(found, ["msg_0"]) == {"msg_0": "it was asked for", "c0.input": "it holds arguments of msg_0"}
    assert related(found, ["c1.input"]) == {"c1.input": "it was asked for", "msg_1": "its arguments are c1.input"}
    assert list(related(found, ["msg_2"])) == ["msg_2"]
