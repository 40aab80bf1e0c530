"""JSON as JavaScript writes it, compared with a JavaScript engine where there is one."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.tools import stringify

NODE = shutil.which("node")
PROGRAM = """
const lines = require("readline").createInterface({input: process.stdin});
lines.on("line", line => process.stdout.write(JSON.stringify(JSON.parse(line)) + "\\n"));
"""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, True, None]}, '{"a":[1,true,null]}'),
        ("é\u2028\x07\n\x7f", '"é\u2028\\u0007\\n\x7f"'),
        ("\ud800", '"\\ud800"'),
        (1.0, "1"),
        (-0.0, "0"),
        (1e-7, "1e-7"),
        (0.00001, "0.00001"),
        (12.5, "12.5"),
        (1e21, "1e+21"),
        (1.2345678901234567e20, "123456789012345670000"),
        (float("nan"), "null"),
        (2**70, str(2**70)),
    ],
)
def test_values(value: object, text: str) -> None:
    assert stringify(value) == text


@pytest.fixture(scope="module")
def javascript() -> Iterator[Callable[[str], str]]:
    """What ``JSON.stringify`` makes of a JSON text, in one process for all examples."""
    if NODE is None:
        pytest.skip("NOT COMPARED with JavaScript: there is no node on this machine")
    with subprocess.Popen([NODE, "-e", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        asked, answers = process.stdin, process.stdout
        assert asked is not None
        assert answers is not None

        def written(text: str) -> str:
            asked.write(text.encode() + b"\n")
            asked.flush()
            return answers.readline().decode().removesuffix("\n")

        yield written
        asked.close()


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
EIGHTHS = st.integers(-(10**9), 10**9).map(lambda number: number / 8)


@given(values=st.lists(FLOATS | EIGHTHS | st.text(max_size=20), max_size=200))
def test_it_writes_what_javascript_writes(javascript: Callable[[str], str], values: list[float | str]) -> None:
    assert stringify(values) == javascript(json.dumps(values))


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="a key is not text"):
        stringify({1: 2})
