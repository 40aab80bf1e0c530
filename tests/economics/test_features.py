"""What the planner makes of a call: which program its shell ran, and which kind of item its result is."""

from typing import Any

import pytest

from ctxfs.eviction.economics.parameters import ItemKind, kind_of_result, program_of


@pytest.mark.parametrize(
    ("arguments", "program"),
    [
        ({"command": "cat src/a.py"}, "cat"),
        ({"cmd": ["bash", "-lc", "cd x && nl -ba a.py | sed -n 1,40p"]}, "nl"),
        ({"cmd": []}, ""),
        ({"command": "cat > a.py <<'EOF'\nvalue = 1\nEOF"}, ""),
        ({"command": "python - <<'EOF'\ncat\nEOF"}, "python"),
        ({"command": "FOO=1 /usr/bin/pytest -q; echo done"}, "pytest"),
        ({"command": "make || git diff"}, "git"),
        ({"command": "cd x && git show HEAD:a.py"}, "git show"),
        ({"command": "export A=1\ngrep -n x a.py"}, "grep"),
        ({"command": ""}, ""),
        ({"path": "a.py"}, ""),
    ],
)
def test_a_shell_shows_what_its_last_command_prints(arguments: dict[str, Any], program: str) -> None:
    assert program_of(arguments) == program


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Read", ItemKind.FILE),
        ("sed", ItemKind.FILE),
        ("git show", ItemKind.FILE),
        ("Grep", ItemKind.RESULT),
        ("exec_command", ItemKind.RESULT),
        ("rg", ItemKind.RESULT),
    ],
)
def test_what_reads_a_file_is_known_by_its_name(name: str, expected: ItemKind) -> None:
    assert kind_of_result(name) is expected
