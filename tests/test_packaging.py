"""What `pip install ctxfs` brings: the code, the types, the vocabulary and its licence, and nothing else."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.service

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"
PAGE = (
    "ctxfs/view/templates/base.html",
    "ctxfs/view/static/view.js",
    "ctxfs/view/static/charts.js",
    "ctxfs/view/static/LICENSE-uplot",
)
COUNT = "import ctxfs, ctxfs.messages.tokens as t; print(ctxfs.__file__, t.tiktoken_counter().count('hello world'))"


def build(kind: str, target: Path) -> Path:
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(target)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_what_is_needed_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    for needed in (
        *PAGE,
        "ctxfs/py.typed",
        "ctxfs/data/o200k_base.xz",
        "ctxfs/data/LICENSE-tiktoken",
        "ctxfs/messages/tokens.py",
    ):
        assert needed in names
    licences = [name for name in names if ".dist-info/licenses/" in name]
    assert sorted(name.rpartition("/")[2] for name in licences) == [
        *("LICENSE", "LICENSE-genai-prices", "LICENSE-htmx", "LICENSE-tiktoken", "LICENSE-uplot")
    ]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"ctxfs"}
    assert {Path(name).suffix for name in names if name.startswith("ctxfs/")} <= {
        ".py",
        ".typed",
        ".xz",
        ".md",
        "",
        ".html",
        ".css",
        ".js",
    }
    # 0.8 MB of it are the tokenizer's vocabulary. Look at what was added before you raise this.
    assert wheel.stat().st_size < 2_100_000
    assert "License-Expression: MIT" in metadata
    always = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert {re.findall(r"[\w.-]+", line)[1] for line in always} == {
        *("anyio", "backports-zstd", "google-re2", "msgspec", "orjson", "pydantic", "tiktoken", "typing-extensions")
    }, "what is not needed by all of ctxfs is an extra"
    assert {"cli", "anthropic", "openai", "prices", "fast"} <= {
        line.split()[-1] for line in metadata.splitlines() if "Provides-Extra" in line
    }


def test_an_installed_wheel_counts(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", COUNT], env=environment, check=True, capture_output=True, text=True)
    file, count = done.stdout.split()
    assert file.startswith(str(tmp_path))
    assert count == "2"


def test_the_sdist_can_build_the_wheel_and_run_the_tests(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "Makefile", "tests/conftest.py", "src/ctxfs/data/o200k_base.xz"} <= names
    assert not [name for name in names if name.startswith((".venv", ".git/", "dist"))]
