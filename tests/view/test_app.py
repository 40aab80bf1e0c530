"""The page over HTTP: what each address answers, and who is refused."""

import importlib.metadata
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

import recording_samples as samples
from ctxfs.cli.app import run
from ctxfs.context import History, Part
from ctxfs.context.context import Context
from ctxfs.errors import ConfigError
from ctxfs.lab.ab.results import Header, Results, SessionResult
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage, UserMessage
from ctxfs.storage import LocalSessions
from ctxfs.version import __version__
from ctxfs.view.app import MOST_STREAMS
from ctxfs.view.server import ViewServer
from patience import HANGS_S
from view.served import serving
from view_session import SESSION, make_session

pytestmark = pytest.mark.not_measured


def get(address: str, **headers: str) -> httpx2.Response:
    return httpx2.get(address, headers=headers, timeout=HANGS_S)


def test_the_list_shows_all_sessions(url: str) -> None:
    page = get(url)
    assert page.status_code == 200
    assert SESSION in page.text
    assert "hostile" in page.text
    assert "claude-sonnet-4-5" in page.text
    rows = get(f"{url}?filter=checkout&sort=size", **{"HX-Request": "true", "HX-Target": "sessions"})
    assert rows.text.lstrip().startswith("<div")
    assert SESSION in rows.text
    assert "hostile" not in rows.text
    assert "No session has" in get(f"{url}?filter=nobody").text


def test_a_session_shows_its_last_call_unless_another_one_is_named(url: str) -> None:
    page = get(f"{url}session/{SESSION}").text
    assert 'data-call="30" data-calls="30"' in page
    assert "claude-sonnet-4-5" in page
    other = get(f"{url}session/{SESSION}?call=8").text
    assert 'data-call="8"' in other
    assert re.search(r"What changed from here to <a href=[^>]*call=9#since\">call 9</a>", other)
    assert re.search(r"What changed since <a href=[^>]*call=7\">call 7</a>", other)
    assert "What changed since this call" in page
    assert "run(pytest tests/test_checkout.py --count 300)" in other
    assert "The request, as it was sent" in other
    panel = get(f"{url}session/{SESSION}?call=8", **{"HX-Request": "true", "HX-Target": "call"})
    assert panel.text.lstrip().startswith('<section id="call"')
    assert 'data-call="30"' in get(f"{url}session/{SESSION}?call=9999").text


@pytest.mark.service
def test_a_context_over_its_window_is_no_percentage(tmp_path: Path) -> None:
    async def begin() -> None:
        for name, words in (("over", 4_000), ("inside", 100)):
            async with Context(name, root_path=tmp_path, model="", window=1_500, offload_enabled=False) as context:
                await context.add(UserMessage("word " * words), AssistantMessage("an answer"))

    anyio.run(begin)
    with serving(tmp_path) as url:
        over, inside = (get(f"{url}session/{name}").text for name in ("over", "inside"))
    assert re.search(r"over its window</span> <small>4,003 of 1,125 tokens<", over)
    assert "% full" not in over
    assert re.search(r">9% full <small>103 of 1,125 tokens<", inside)


@pytest.mark.service
def test_a_session_without_evictions_explains_no_words_of_them(tmp_path: Path) -> None:
    async def begin() -> None:
        async with Context("small", root_path=tmp_path, model="", window=None, pricing=None) as context:
            await context.add(UserMessage("a question"), AssistantMessage("an answer"))

    anyio.run(begin)
    with serving(tmp_path) as url:
        page = get(f"{url}session/small").text
    assert 'data-call="1"' in page
    assert "<dfn>" not in page
    assert "Evicted" not in page


def test_an_item_shows_its_life_its_file_and_its_lines(url: str, root: Path) -> None:
    page = get(f"{url}session/{SESSION}?item=call_004").text
    assert "shop/stock.py: part of the shop" in page
    assert f"{root}/{SESSION}/tool_result/read_file/call_004.json" in page
    assert "never read it back" in page
    for said in (  # figures depend on the length of the root's path
        r"evicted: 4,589 → \d+ tokens",
        r"not in the context since call \d+; kept whole in the file below",
        r"Since then: \d+ calls with [\d,]+ fewer tokens, which would have cost \$0\.\d+ or more\.",
    ):
        assert re.search(said, page), said
    again = get(f"{url}session/{SESSION}?item=call_003").text
    rewritten = r"It made the cache write [\d,]+ tokens again, for about .* So far it has lost \$0\.\d+ or less\."
    assert re.search(rewritten, again)
    assert "in the context, whole" in get(f"{url}session/{SESSION}?item=msg_001").text
    found = get(f"{url}session/{SESSION}?item=call_004&how=grep&find=part+of+the+shop").text
    assert "1 line matches" in found
    tail = get(f"{url}session/{SESSION}?item=call_008&how=tail").text
    assert "run 299" in tail
    assert "[Content offloaded" in get(f"{url}session/{SESSION}?item=call_004&how=placeholder").text
    inline = get(f"{url}session/{SESSION}?item=msg_002&how=grep&find=test_checkout").text
    assert "1 line matches" in inline
    assert 'role="alert"' in get(f"{url}session/{SESSION}?item=call_004&how=grep&find=%28").text


@pytest.mark.service
def test_a_result_that_was_previewed_says_why(tmp_path: Path) -> None:
    async def session() -> None:
        async with Context("previewed", root_path=tmp_path) as context:
            call = {"type": "tool_use", "id": "call_1", "name": "bash", "input": {}}
            result = {"type": "tool_result", "tool_use_id": "call_1", "content": "a line of a log\n" * 4_000}
            await context.add(UserMessage("go"), {"role": "assistant", "content": [call]})
            await context.add({"role": "user", "content": [result]})
            await context.messages()
            await context.add(AssistantMessage("Done."))

    anyio.run(session)
    why = "previewed: over 8,000 tokens (setting: preview_above_tokens)"
    with serving(tmp_path) as url:
        item = get(f"{url}session/previewed?item=call_1").text
        assert f'and never sent whole <span class="why">Why: {why}</span>' in item
        assert why in get(f"{url}session/previewed?call=2").text


@pytest.mark.service
def test_the_page_of_a_session_that_is_not_open_yet_begins_at_once(root: Path) -> None:
    with serving(root) as url:
        first = get(f"{url}session/{SESSION}")
        assert first.text.index("Reading the journal") < first.text.index('id="facts"')
        assert first.text.count("<main") == first.text.count("</main>") == 1
        again = get(f"{url}session/{SESSION}").text
        assert "Reading the journal" not in again
        assert "".join(re.split(r"<p class=\"loading\".*\n+", first.text)) == again


def test_the_tabs_show_items_and_warnings(url: str) -> None:
    items = get(f"{url}session/{SESSION}/items").text
    assert "read_file(shop/checkout.py)" in items
    warnings = get(f"{url}session/{SESSION}/warnings").text
    assert get(f"{url}session/{SESSION}/").status_code == 200  # a slash at the end is no other page
    assert "The prompt cache lost its contents" in warnings


def test_items_are_filtered(url: str) -> None:
    panel = {"HX-Request": "true", "HX-Target": "items"}
    found = get(f"{url}session/{SESSION}/items?filter=shop/stock&left=1&order=size", **panel).text
    assert found.lstrip().startswith('<section id="items"')
    assert "2 items<" in found
    assert "read_file(shop/stock.py)" in found
    assert "No item matches" in get(f"{url}session/{SESSION}/items?filter=nobody", **panel).text


def test_a_wrong_expression_can_be_mended_where_it_was_typed(url: str) -> None:
    answer = get(f"{url}search?find=reserve(")
    assert answer.status_code == 400
    assert 'value="reserve("' in answer.text
    assert "is not a valid regular expression" in answer.text


def test_all_sessions_are_searched(url: str) -> None:
    assert "RE2 expression" in get(f"{url}search").text
    found = get(f"{url}search?find=cart.py.*reserve%7Cquestion-that-nobody-asked").text
    assert "call_009" in found
    assert "and more lines" in found
    assert "2 sessions searched" in found
    assert "Nothing matches" in get(f"{url}search?find=question-that-nobody-asked").text
    assert get(f"{url}search?find=%28").status_code == 400
    assert "<mark>alert</mark>(1)&lt;/script&gt;" in get(f"{url}search?find=alert").text
    assert "<mark>&lt;/script&gt;</mark>" in get(f"{url}search?find=%3C/script%3E").text
    assert re.search(
        rf'<h2 class="of"><a href="[^"]*/session/{SESSION}">[^<]+ [^<]+</a> <small>{SESSION}</small>', found
    )
    assert found.count('<h2 class="of">') == 1, "once for all items of a session"


def test_a_request_can_be_had_in_full(url: str) -> None:
    answer = get(f"{url}session/{SESSION}/request.json?call=3")
    assert answer.text.startswith('{\n  "'), "a line for each value"
    sent = answer.json()
    assert sent["system"][0]["text"].startswith("You are a careful engineer")
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert get(f"{url}session/{SESSION}/request.json?call=77").status_code == 404


def test_the_page_says_which_version_it_is_and_where_the_docs_are(url: str) -> None:
    page = get(url).text
    assert f"ctxfs {__version__}</footer>" in page
    metadata = dict(line.split(", ") for line in _urls())
    assert f'href="{metadata["Documentation"]}"' in page


def _urls() -> list[str]:
    return importlib.metadata.metadata("ctxfs").get_all("Project-URL") or []


def test_the_charts_data_are_columns(url: str) -> None:
    data = get(f"{url}session/{SESSION}/timeline.json").json()
    lanes = {lane["name"]: lane for lane in data["lanes"]}
    assert sum(lanes["evicted"]["counts"]) == 21, "as many as the headline says"
    assert len(lanes["evicted"]["counts"]) == len(set(lanes["evicted"]["calls"])) < 21
    assert data["too_long_from"] == 14
    assert data["calls"] == list(range(1, 31))
    assert data["bills"]["usd"]
    assert {len(layer["tokens"]) for layer in data["layers"]} == {30}


@pytest.mark.parametrize("query", ["", "?item=msg_001", "?item=call_1", "?item=call_1&how=tail", "?call=1"])
def test_what_is_hostile_is_shown_as_text(url: str, query: str) -> None:
    page = get(f"{url}session/hostile{query}")
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "<img" not in page.text
    assert not {"\x1b", "\u202e"} & set(page.text)
    assert len(page.text) < 60_000
    assert "alert(1)" in page.text


def test_a_long_line_is_shown_in_parts(url: str) -> None:
    page = get(f"{url}session/hostile?item=call_1").text
    assert "rest of this line" in page
    part = get(f"{url}session/hostile?item=call_1&line=2&char=299990").text
    assert "x" * 10 in part
    assert "x" * 11 not in part
    last = get(f"{url}session/hostile?item=call_1&line=3").text
    assert "end" in last


def test_what_is_not_there_says_so(url: str) -> None:
    assert get(f"{url}session/nobody").status_code == 404
    get(f"{url}session/{SESSION}")  # the answer of one that is not open yet begins before its items are known
    assert get(f"{url}session/{SESSION}?item=nobody").status_code == 404
    assert get(f"{url}session/..%2f..%2fetc").status_code == 404
    assert get(f"{url}recording/9").status_code == 404
    assert get(f"{url}static/nothing.js").status_code == 404
    assert get(f"{url}nothing/at/all").status_code == 404


def test_strangers_are_refused(url: str) -> None:
    base = url.rsplit("/", 2)[0]
    assert get(f"{base}/").status_code == 403
    assert get(f"{base}/wrong/").status_code == 403
    assert get(url, Host="evil.example").status_code == 403
    assert get(url, Origin="https://evil.example").status_code == 403
    assert get(url, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert httpx2.post(url, timeout=HANGS_S).status_code == 403


def test_every_answer_says_what_the_browser_may_do(url: str) -> None:
    for address in (url, f"{url}static/view.js", f"{url}nothing", url.rsplit("/", 2)[0]):
        headers = get(address).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


@pytest.mark.service
def test_a_session_that_grows_is_followed(tmp_path: Path) -> None:
    async def grow(number: int) -> None:
        async with Context("live", root_path=tmp_path, model="", window=None, pricing=None) as context:
            await context.add(UserMessage(f"question {number}"))
            await context.add(AssistantMessage(f"answer {number}"))

    anyio.run(grow, 1)
    with serving(tmp_path) as url:
        assert get(f"{url}session/live/timeline.json").json()["calls"] == [1]
        with httpx2.stream("GET", f"{url}session/live/events", timeout=HANGS_S) as events:
            lines = events.iter_lines()
            assert next(lines) == "retry: 1000"
            anyio.run(grow, 2)
            assert next(line for line in lines if line.startswith("event")) == "event: grew"
            assert "data: 2" in lines, "perhaps after an event for the question alone"
        assert get(f"{url}session/live/timeline.json").json()["calls"] == [1, 2]
        assert json.loads(get(f"{url}session/live/timeline.json").text)["bills"] is None


@pytest.mark.service
def test_only_so_many_pages_follow_sessions(root: Path) -> None:
    with serving(root) as url, ExitStack() as streams:
        address = f"{url}session/{SESSION}/events"
        assert "retry" in followed(address, streams, version="9" * 5_000)
        for _ in range(MOST_STREAMS - 1):
            followed(address, streams)
        refused = get(address)
        assert refused.status_code == 503
        assert "close some" in refused.text
        assert get(url).status_code == 200
        streams.close()
        while True:  # the server notices that a page is gone when it next looks
            with httpx2.stream("GET", address, timeout=HANGS_S) as again:
                if again.status_code == 200:
                    break


def followed(address: str, streams: ExitStack, **query: str) -> str:
    """The first line of a stream of events, which stays open."""
    answer = streams.enter_context(httpx2.stream("GET", address, params=query, timeout=HANGS_S))
    lines = answer.iter_lines()
    streams.callback(id, lines)  # without a reference to it, it would close the stream
    return str(next(lines))


@pytest.mark.service
def test_a_damaged_session_hides_no_other_one(root: Path, tmp_path: Path) -> None:
    async def two() -> None:
        for name in ("good", "bad"):
            async with Context(name, root_path=tmp_path, model="", window=None) as context:
                await context.add(UserMessage("x" * 20_000))

    anyio.run(two)
    (content,) = (tmp_path / "bad" / "user_message").glob("*.json")
    content.unlink()
    with serving(tmp_path) as url:
        page = get(url).text
        assert "good" in page
        assert "damaged" in page
        assert "A stored content cannot be read" in get(f"{url}session/bad/warnings").text
        assert 'role="alert"' in get(f"{url}session/bad?item=msg_001").text


@pytest.mark.service
def test_a_port_that_is_taken_is_refused_unless_none_was_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        port = int(url.split(":")[2].split("/")[0])
        with pytest.raises(ConfigError, match="--port 0"):
            ViewServer(LocalSessions(tmp_path), port=port)
        first, second = ViewServer(LocalSessions(tmp_path)), ViewServer(LocalSessions(tmp_path))
        assert first.url.split("/")[2] != second.url.split("/")[2]
        first.close()
        second.close()


@pytest.mark.service
def test_a_recording_shows_its_policies_side_by_side(tmp_path: Path) -> None:
    samples.anthropic(tmp_path / "talk.json")
    (tmp_path / "broken.json").write_text("[")
    with serving(tmp_path / "root", [tmp_path / "talk.json", tmp_path / "broken.json"]) as url:
        assert "talk.json" in get(url).text
        page = get(f"{url}recording/0").text
        assert re.search(r'<tr class="ours"><th scope="row">ctxfs</th>', page)
        assert '<th scope="row">never evicting</th>' in page
        assert 'data-call="' in page
        assert 'data-label="Peak context"' in page, "a phone has no heads of columns"
        data = get(f"{url}recording/0/timeline.json").json()
        assert {line["name"] for line in data["lines"]} >= {"none", "economic"}
        sizes = {line["name"]: f"{line['values'][0]:,} <small>tokens" for line in data["lines"]}
        first = get(f"{url}recording/0?call=1").text
        assert sizes["none"] in first.partition("Request, nothing evicted")[2]
        assert sizes["economic"] in first.partition("With ctxfs")[2]
        assert all(len(line["values"]) == len(data["calls"]) for line in data["lines"] + data["costs"])
        part = get(f"{url}recording/0?call=1", **{"HX-Request": "true", "HX-Target": "call"}).text
        assert part.lstrip().startswith('<section id="call"')
        assert "JSON" in get(f"{url}recording/1").text
        assert get(f"{url}recording/7").status_code == 404


def compared(file: Path) -> Path:
    """The results of a comparison whose notes are hostile."""
    with Results(file, Header(seed=0, arms=("none", "exact:1"), repeats=2, tasks="x")) as results:
        for arm in ("none", "exact:1"):
            for repeat in range(2):
                note = "exit code 1: <script>no</script>"
                results.ended(SessionResult(task="port", repeat=repeat, arm=arm, outcome="crashed", usd=0.5, note=note))
    return file


@pytest.mark.service
def test_a_comparison_of_arms_is_shown_with_its_sessions(tmp_path: Path) -> None:
    with serving(tmp_path, comparisons=[compared(tmp_path / "tasks.results.jsonl")]) as url:
        assert 'comparison/0"' in get(url).text
        page = get(f"{url}comparison/0").text
        assert "exact:1 solved 0 of 2, none 0; not worse by more than 5 points" in page
        assert "port, repeat 2" in page
        assert "&lt;script&gt;no" in page
        assert "<script>no" not in page
        assert "crashed: exit code 1: &lt;" in page
        assert get(f"{url}comparison/1").status_code == 404
    with serving(tmp_path) as url:
        assert get(f"{url}comparison/0").status_code == 404


@pytest.mark.service
def test_the_command_shows_recordings_and_comparisons_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    compared(folder / "tasks.results.jsonl")
    samples.anthropic(folder / "talk.json")
    for given, found in ((folder, "Recordings"), (folder / "tasks.results.jsonl", "comparison of arms")):
        command = [sys.executable, "-m", "ctxfs", "view", str(given), "--no-open", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--root", str(tmp_path)], stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        try:
            assert process.stderr is not None
            page = get(process.stderr.readline().strip()).text
        finally:
            process.terminate()
            process.communicate(timeout=HANGS_S)
        assert found in page
        assert "tasks.results.jsonl" in page


@pytest.mark.service
def test_a_recording_says_why_a_cheaper_policy_is_not_the_default(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look around"}]
    for n in range(12):
        call = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": f"make step-{n}"}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"line {n} of what was printed\n" * 1_000}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    file = tmp_path / "long.json"
    file.write_text(json.dumps({"messages": [*messages, {"role": "assistant", "content": "done"}]}))
    with serving(tmp_path / "root", [file]) as url:
        page = get(f"{url}recording/0").text
        assert "eager-2k costs less here" in page
        assert "it hides results before the model has seen them." in page


@pytest.mark.service
def test_a_session_without_bills_says_that_no_calls_are_recorded(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, keep_recent={"read": 1}, model="claude-sonnet-4-5") as history:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all."}]
        for n in range(3):
            call = {"type": "tool_use", "id": f"c{n}", "name": "read", "input": {"n": n}}
            result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"{n}\n" * 4_000}
            messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        history.messages({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages})
    with serving(tmp_path) as url:
        page = get(f"{url}session/s").text
    assert "No call of a model is recorded in this session." in page
    assert "Context now" not in page
    assert "Without eviction</dt>" not in page


@pytest.mark.service
def test_a_session_of_a_framework_shows_what_was_replaced(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, keep_recent={"read": 1}, model="claude-sonnet-4-5") as history:
        parts = [Part("user", "Read both.", 0)]
        for n in (1, 2):
            parts += [
                Part("call", {"n": n}, 2 * n, f"c{n}", "read"),
                Part("result", f"{n}\n" * 4_000, 2 * n + 1, f"c{n}", "read"),
            ]
            history.rewrite(parts)
            history.replied(Usage(input_tokens=9_000 * n), "claude-sonnet-4-5")
            parts.append(Part("reply", "read", 2 * n + 1.5))
    with serving(tmp_path) as url:
        page = get(f"{url}session/s?call=2&item=c1&how=placeholder").text
        assert "What was replaced in the request" in page
        assert "[Content offloaded]" in page
        assert "read c1" in page
        assert "Read-backs are not recorded: the loop has its messages." in page
        assert '<dt>Read back</dt><dd><span class="text">not recorded</span>' in page
        assert "it is not recorded here, since the loop has its messages" in page
        for wrong in ("never read it back", "never needed again", "and without reading back"):
            assert wrong not in page
        assert "as it was sent" not in page


@pytest.mark.service
def test_a_long_block_of_a_recording_has_pages_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "long.json"
    text = "".join(f"{n:06}\n" for n in range(20_000))
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": "second"},
    ]
    file.write_text(json.dumps(messages))
    with serving(tmp_path, [file]) as url:
        page = get(f"{url}recording/0?call=1").text
        assert "all 140,000 characters" in page
        seen = ""
        first: int | None = 0
        while first is not None:
            part = get(f"{url}recording/0/text?session=1&call=1&block=0&from={first}").text
            shown = re.search(r'<pre class="content whole"[^>]*>(.*?)</pre>', part, re.DOTALL)
            assert shown is not None
            seen += shown[1]
            following = re.search(r"from=(\d+)\">more", part)
            first = int(following[1]) if following is not None else None
        assert seen == text
        assert "first" in get(f"{url}recording/0/text?call=1&block=1").text
        assert "no block 9" in get(f"{url}recording/0/text?call=1&block=9").text
        assert "000000" not in get(f"{url}recording/0/text?call=1&block=0&from=999999999").text


@pytest.mark.service
def test_all_recordings_of_a_file_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "many.json"
    samples.inspect_json(file)
    log = json.loads(file.read_text())
    silent = {"id": 8, "epoch": 1, "messages": [{"id": "q", "role": "user", "content": "hello"}], "events": []}
    log["samples"] = [log["samples"][0], silent, {**log["samples"][0], "id": 2}, {**log["samples"][0], "id": 3}]
    file.write_text(json.dumps(log))
    with serving(tmp_path, [file]) as url:
        page = get(f"{url}recording/0").text
        assert "Recordings in this file" in page
        names = re.findall(r'recording/0\?session=\d"[^>]*><span class="what">(.*?)</span>', page)
        assert len(names) == 3
        third = get(f"{url}recording/0?session=3").text
        assert f"<h1>{names[2]}" in third
        assert 'data-call="2" data-calls="2"' in third
        assert get(f"{url}recording/0/timeline.json?session=2").json()["calls"] == [1, 2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nobody"], "no session 'nobody'"),
        (["a", "b.json"], "a, b.json are not files, so name one session"),
        (["nothing.json"], "there is no file nothing.json, and no session with that name under"),
        (["no/thing"], "there is no file or folder no/thing"),
        (["nothing.json", "--export", "page.html"], "there is no file nothing.json, and no session with that name"),
        (["--port", "99999"], "65535"),
    ],
)
def test_wrong_use_is_one_line(given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view", *given, "--no-open", "--root", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.service
def test_a_page_that_may_write_restores_pins_and_undoes(tmp_path: Path) -> None:
    anyio.run(make_session, tmp_path)
    with serving(tmp_path, may_write=True) as url:
        here, origin = f"{url}session/{SESSION}", url.split("/", 3)[2]
        page = get(f"{here}?item=call_002").text
        known = re.search(r'name="ctxfs-write" content="([^"]+)"', page)
        assert known is not None
        own = {"X-Ctxfs-Write": known[1], "Origin": f"http://{origin}"}

        def post(query: str, headers: dict[str, str] = own) -> httpx2.Response:
            return httpx2.post(f"{here}/change?{query}", headers=headers, timeout=HANGS_S)

        for wrong in ({}, {"Origin": own["Origin"]}, {**own, "X-Ctxfs-Write": "x"}, {**own, "Origin": "http://evil"}):
            assert post("do=restore&item=call_002", wrong).status_code == 403
        assert post("do=nonsense&item=call_002").status_code == 400
        assert "nobody" in post("do=restore&item=nobody").text
        assert post("do=restore&item=call_002").text == "done"
        assert "restored" in get(f"{here}?item=call_002").text
        assert post("do=pin&item=call_001").text == "done"
        assert post("do=unpin&item=call_001").text == "done"
    with serving(tmp_path) as url:
        page = get(f"{url}session/{SESSION}?item=call_002").text
        assert "ctxfs-write" not in page
        assert "data-do" not in page
        given = {**own, "Origin": url[: url.index("/", 8)]}
        assert httpx2.post(f"{url}session/{SESSION}/change?do=undo", headers=given, timeout=HANGS_S).status_code == 403
