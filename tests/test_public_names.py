"""The public names. Whoever changes this table changes what users may rely on: the changelog says so too."""

import importlib

import pytest

PUBLIC: dict[str, set[str]] = {
    "ctxfs": set(),
    "ctxfs.agent": set(),
    "ctxfs.tools": set(),
    "ctxfs.llm": set(),
    "ctxfs.context": set(),
    "ctxfs.testing": set(),
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    assert set(getattr(importlib.import_module(module), "__all__", ())) == PUBLIC[module]


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_exist(module: str) -> None:
    package = importlib.import_module(module)
    assert [name for name in PUBLIC[module] if not hasattr(package, name)] == []
    assert PUBLIC[module] <= set(dir(package)), "also the ones that are imported when first used"
