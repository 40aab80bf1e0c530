"""``ctxfs cat`` and ``tail`` on what left in an archive: the item itself, and the archive's own text."""

import json
from pathlib import Path

import anyio
import pytest

from ctxfs import Context
from ctxfs.cli.app import run
from ctxfs.eviction.window import Window
from ctxfs.session.entries import archived

RESULT = "one\ntwo, as it was said é\nthree"


async def _session(root: Path) -> dict[str, str]:
    """A session with items in an archive; which item is in which."""
    budget = Window(window_tokens=3_000, reply_tokens=100)
    async with Context(root_path=root, window=budget) as context:
        await context.add({"role": "user", "content": "go"})
        for number in range(12):
            call = {"type": "tool_use", "id": f"call_{number}", "name": "bash", "input": {}}
            result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": RESULT}
            await context.add({"role": "assistant", "content": [{"type": "text", "text": "word " * 300}, call]})
            await context.add({"role": "user", "content": [result]})
            await context.messages()
        archive = context.fs.state.archived.get("call_0")
        assert archive is not None
        return {item.id: archive for item in await archived(context.fs, archive)}


def test_an_item_that_left_in_an_archive_is_printed(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    archives = anyio.run(_session, tmp_path)

    def ctxfs(command: str, item: str, *arguments: str) -> tuple[int, bytes]:
        code = run([command, "last", item, *arguments, "--root", str(tmp_path)])
        return code, capfdbinary.readouterr().out

    assert ctxfs("cat", "call_0") == (0, RESULT.encode())
    assert ctxfs("cat", "call_0", "--tail", "1") == (0, b"three")
    assert ctxfs("cat", "call_0", "--lines", "2:2") == (0, "two, as it was said é\n".encode())
    code, out = ctxfs("cat", "call_0", "--json")
    told = json.loads(out)
    assert (code, told["place"], told["content"], told["tokens"]) == (0, "archive", RESULT, 0)
    code, out = ctxfs("cat", archives["call_0"])
    assert code == 0
    assert RESULT.encode() in out
    assert [line.split(b" ")[1].decode() for line in out.splitlines() if line.startswith(b"=== ")] == list(archives)
    assert ctxfs("cat", "call_99")[0] == 2
