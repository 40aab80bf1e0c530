"""The view of a request to Gemini: what is shown of its contents, and what is sent."""

import copy
from typing import Any

import pytest

from ctxfs.context.history.parts import Edits, plain_content
from ctxfs.context.history.wire import tools_in
from ctxfs.context.history.wire_gemini import GEMINI
from ctxfs.errors import InvalidReply, TranscriptError
from ctxfs.messages.base import Usage

BODY: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "be brief"}]},
    "tools": [{"functionDeclarations": [{"name": "Read"}, {"name": "Bash"}]}, {"googleSearch": {}}],
    "generationConfig": {"temperature": 0},
    "contents": [
        {"role": "user", "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"text": "reading"},
                {"functionCall": {"id": "c1", "name": "Read", "args": {"path": "a"}}},
                {"functionCall": {"name": "Bash"}, "thoughtSignature": "xx"},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "Read", "response": {"result": "one"}}},
                {"functionResponse": {"name": "Bash", "response": {"stdout": "two", "code": 0}}},
                {"functionResponse": {"name": "Bash", "response": {"error": "no"}}},
                {"functionResponse": {"name": "Bash", "response": {}, "parts": [{"inlineData": {}}]}},
                {"fileData": {"fileUri": "https://example.org/a.pdf"}},
                {"executableCode": {"code": "1"}},
            ],
        },
    ],
}


def test_a_request_is_shown_part_by_part() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    file = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.pdf"}}
    code = {"type": "text", "text": '{"executableCode":{"code":"1"}}'}
    shown = [(p.kind, plain_content(p), p.id, p.tool, p.stays) for p in GEMINI.parts_of(BODY)]
    assert shown == [
        ("user", "look", "", "", False),
        ("user", (image,), "", "", True),
        ("reply", "hm", "", "", True),
        ("reply", "reading", "", "", False),
        ("call", {"path": "a"}, "c1", "Read", False),
        ("call", {}, "", "Bash", True),
        ("result", "one", "c1", "Read", False),
        ("result", '{"stdout":"two","code":0}', "", "Bash", False),
        ("result", '{"error":"no"}', "", "Bash", True),
        ("result", "{}", "", "Bash", True),
        ("user", (file,), "", "", True),
        ("user", (code,), "", "", True),
    ]
    assert tools_in(BODY) == ["Read", "Bash"]
    assert GEMINI.beside(BODY) == {"systemInstruction": BODY["systemInstruction"], "tools": BODY["tools"]}


@pytest.mark.parametrize("key", ["responseSchema", "responseJsonSchema"])
def test_the_schema_of_the_answer_is_counted_beside_the_history(key: str) -> None:
    schema = {"type": "object", "properties": {"line": {"type": "string"}}}
    assert GEMINI.beside({"contents": [], "generationConfig": {key: schema, "temperature": 0}}) == {key: schema}
    assert GEMINI.beside({"contents": [], "generationConfig": {"temperature": 0}}) == {}
    assert GEMINI.beside({"contents": [], "tools": [{"googleSearch": {}}]}) == {"tools": [{"googleSearch": {}}]}


def test_what_is_replaced_keeps_its_place_and_the_rest_is_the_same_object() -> None:
    before = copy.deepcopy(BODY)
    edits = Edits({(0, 0): "x", (1, 2): {"path": "b"}, (2, 1): "[placeholder]"})
    sent = GEMINI.applied(BODY, edits)["contents"]
    assert sent[0]["parts"] == [{"text": "x"}, BODY["contents"][0]["parts"][1]]
    assert sent[1]["parts"][2] == {"functionCall": {"id": "c1", "name": "Read", "args": {"path": "b"}}}
    assert sent[2]["parts"][1] == {"functionResponse": {"name": "Bash", "response": {"result": "[placeholder]"}}}
    assert sent[2]["parts"][0] is BODY["contents"][2]["parts"][0]
    assert before == BODY
    assert GEMINI.applied(BODY, Edits({})) is BODY


def test_a_body_of_another_api_is_refused() -> None:
    with pytest.raises(TranscriptError, match=r"needs a list under 'contents'; this one has 'input', so call resp"):
        GEMINI.parts_of({"input": []})
    with pytest.raises(TranscriptError, match=r"contents\[0\] is not a content of generateContent: 'parts' is missing"):
        GEMINI.parts_of({"contents": [{"role": "user", "content": "go"}]})


def test_what_gemini_bills() -> None:
    said = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 7, "thoughtsTokenCount": 3}
    assert Usage.of(said) == Usage(input_tokens=40, cache_read_input_tokens=60, output_tokens=10)
    assert Usage.of({"promptTokenCount": 5}) == Usage(input_tokens=5)
    with pytest.raises(InvalidReply, match="promptTokenCount"):
        Usage.of({"promptTokenCount": -1})
