"""The reference pages are complete: what a program can meet has its line there."""

import ast
import inspect
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

import ctxfs
from ctxfs import AgentConfig, errors
from ctxfs.eviction import events
from ctxfs.session import records
from ctxfs.session.record_json import to_json
from test_public_names import PUBLIC

DOCS = Path(__file__).resolve().parent.parent / "docs"
RECORDS = [
    kind
    for kind in vars(records).values()
    if inspect.isclass(kind) and kind.__module__ == records.__name__ and kind.__name__ in records.__all__
]


def names_of(kind: type) -> str:
    """The name of a record in a journal: its class's in lower case."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__)[1:]


def test_every_record_of_a_journal_is_in_the_page_of_the_files() -> None:
    page = (DOCS / "files.md").read_text()
    known = [names_of(kind) for kind in RECORDS if kind is not records.UnknownRecord]
    assert len(known) > 15
    assert [name for name in (*known, "stored") if f"`{name}`" not in page] == []
    assert to_json(records.Closed(closed_at=1.0))["type"] == "closed"


@pytest.mark.parametrize("module", [errors, events])
def test_every_error_and_every_event_is_public_and_says_what_it_is(module: ModuleType) -> None:
    public = {name for names in PUBLIC.values() for name in names.split()}
    own = [
        kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__.startswith(module.__name__)
    ]
    assert own
    for kind in own:
        assert kind.__name__ in public, kind
        assert (inspect.getdoc(kind) or "").strip(), kind


@pytest.mark.parametrize("settings", [AgentConfig])
def test_every_setting_is_described_where_it_stands(settings: type) -> None:
    """An editor and the API's pages show the text that stands below a field."""
    body = ast.parse(inspect.getsource(settings)).body[0]
    assert isinstance(body, ast.ClassDef)
    described = {
        before.target.id
        for before, after in pairwise(body.body)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }
    assert [field.name for field in fields(settings) if field.init and field.name not in described] == []


def test_every_public_module_has_a_page() -> None:
    assert ctxfs.__name__ in PUBLIC
    assert [name for name in PUBLIC if not (DOCS / "api" / f"{name}.md").is_file()] == []
