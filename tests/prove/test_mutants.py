"""The changes that the tests must notice: made as meant, told apart, and no guard forgotten."""

import ast
from pathlib import Path

import pytest

from prove.mutant_equivalents import EQUIVALENT, is_equivalent
from prove.mutant_removals import REMOVALS, removals
from prove.mutant_run import laboratory
from prove.mutant_tests import TestMap, learn
from prove.mutant_worker import changed_functions
from prove.mutations import Mutant, mutants_of, removal
from prove.part_mutants import MODULES, ROOT, sample
from prove.part_mutants import TESTS as TESTS_ASKED

SMALL = '''"""A module."""

LIMIT = 10


def fits(size: int, *, strict: bool = False) -> bool:
    """Whether it fits."""
    if size < 0:
        raise ValueError("no size")
    return size <= LIMIT and not (strict and size == LIMIT)
'''
TESTS = """import pytest

from ctxfs.small import fits


def test_it_fits():
    assert fits(10)
    assert not fits(10, strict=True)
    assert not fits(11)


def test_no_size():
    with pytest.raises(ValueError):
        fits(-1)
"""

EARLY = """def _limit(size):
    return size * 2

LIMIT = _limit(10)

def fits(size):
    return size <= LIMIT
"""
EARLY_TESTS = """from ctxfs.early import fits

def test_it_fits():
    assert fits(20) and not fits(21)
"""

CHECKS = {
    *("check", "check_dir", "check_file", "check_name", "check_names", "check_only_name", "check_open", "check_owner"),
    *("check_process", "check_session_id", "check_spelling"),
}


def source(module: str) -> str:
    return (ROOT / "src" / "ctxfs" / module).read_text()


def changes(text: str) -> set[tuple[int, str, str]]:
    return {(m.line, m.before, m.after) for m in mutants_of("small.py", text)}


def test_the_changes_that_people_make_by_mistake() -> None:
    assert changes(SMALL) == {
        (3, "10", "11"),
        (3, "10", "9"),
        (6, "False", "True"),
        (8, "size < 0", "(not (size < 0))"),
        (8, "<", "<="),
        (8, "0", "1"),
        (9, 'raise ValueError("no size")', "pass"),
        (10, "return size <= LIMIT and not (strict and size == LIMIT)", "return None"),
        (10, "<=", "<"),
        (10, "and", "or"),
        (10, "not (strict and size == LIMIT)", "(strict and size == LIMIT)"),
        (10, "==", "!="),
    }


@pytest.mark.parametrize("module", MODULES)
def test_every_mutant_compiles_and_moves_no_line(module: str) -> None:
    text = source(module)
    found = mutants_of(module, text)
    assert found
    assert len({mutant.key for mutant in found}) == len(found)
    for mutant in found[::30]:
        changed = mutant.applied(text)
        compile(changed, module, "exec")
        assert (
            changed.splitlines()[mutant.line + mutant.before.count("\n") :]
            == (text.splitlines()[mutant.line + mutant.before.count("\n") :])
        )


def test_every_mutant_that_changes_nothing_is_still_one() -> None:
    found = {
        (mutant.module, mutant.source_line, mutant.before, mutant.after)
        for module in {entry.module for entry in EQUIVALENT}
        for mutant in mutants_of(module, source(module))
        if is_equivalent(mutant)
    }
    assert {(e.module, e.line, e.before, after) for e in EQUIVALENT for after in e.after} == found


def test_a_module_has_its_share_of_the_sample() -> None:
    mutants = {module: mutants_of(module, source(module)) for module in MODULES[:3]}
    chosen = sample(mutants, 20)
    assert chosen == sample(mutants, 20)
    assert {mutant.module for mutant in chosen} == set(MODULES[:3])
    assert 20 <= len(chosen) <= 23


def test_functions_are_changed_where_they_are_and_all_else_is_imported_anew() -> None:
    def changed(before: str, after: str) -> list[str] | None:
        functions = changed_functions("small.py", SMALL, removal("small.py", SMALL, before, after).applied(SMALL))
        return None if functions is None else [name for name, _ in functions]

    assert changed("size < 0", "size > 0") == ["fits"]
    assert changed("= 10", "= 11") is None
    assert changed("= False", "= True") is None


def test_the_tests_that_are_asked_are_there() -> None:
    asked = [test.partition("::")[0] for test in TESTS_ASKED if not test.startswith("--")]
    assert not [path for path in asked if not (ROOT / path).exists()]


def test_every_guard_stands_where_the_table_says() -> None:
    for name, mutant in removals(source).items():
        compile(mutant.applied(source(mutant.module)), name, "exec")


def test_no_sync_and_no_check_is_missing_from_the_table() -> None:
    lines = {(m.module, m.line + n) for m in removals(source).values() for n in range(m.before.count("\n") + 1)}
    modules = {removed.module for removed in REMOVALS.values()}
    modules |= {module for module in MODULES if module.startswith("storage/")}
    missing = [
        f"{module}:{call.lineno}: {ast.unparse(call)}"
        for module in sorted(modules)
        for call in ast.walk(ast.parse(source(module)))
        if isinstance(call, ast.Call) and _is_guard(call) and (module, call.lineno) not in lines
    ]
    assert missing == []


def _is_guard(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == "os.fsync":
        return False  # twice in the port; Linux's is in the table, and only macOS runs the other one
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in {"sync", "_sync", "_sync_handle"} or name.lstrip("_") in CHECKS


@pytest.fixture(scope="module")
def small_tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TestMap]:
    """A project of two modules, and what was learned of its tests: some of them in this copy, some in another."""
    work = tmp_path_factory.mktemp("mutants")
    trees = [work / "copy", work / "another"]
    files = {"src/ctxfs/__init__.py": "", "src/ctxfs/small.py": SMALL, "tests/test_small.py": TESTS}
    files |= {"src/ctxfs/early.py": EARLY, "tests/test_early.py": EARLY_TESTS}
    for path, text in ((tree / name, text) for tree in trees for name, text in files.items()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return trees[0], TestMap.from_json(learn(trees, work, ["tests"]).to_json())


@pytest.mark.service
def test_who_runs_a_line_is_known(small_tree: tuple[Path, TestMap]) -> None:
    _, tests = small_tree
    assert tests.of_lines("small.py", 9, 9) == ["tests/test_small.py::test_no_size"]
    assert tests.of_lines("small.py", 10, 10) == ["tests/test_small.py::test_it_fits"]
    assert len(tests.of_module("small.py")) == 2


@pytest.mark.service
def test_tests_fail_with_a_mutant_and_pass_without(small_tree: tuple[Path, TestMap]) -> None:
    tree, tests = small_tree

    def mutant(before: str, after: str) -> Mutant:
        return removal("small.py", SMALL, before, after)

    with laboratory(tree, tests, ["tests"]) as tries:
        killed = [tries.tried(mutant(before, after)).killed_by for before, after in (("<=", "<"), ("= 10", "= 9"))]
        assert killed == ["tests/test_small.py::test_it_fits"] * 2
        assert tries.tried(mutant("size < 0", "size <= -1")).killed_by is None
        assert tries.tried(mutant("= False", "= 0")).killed_by is None
        assert tries.tried(mutant("= 10", "= 10 + None")).killed_by is not None  # it cannot even be imported
        hanging = tries.tried(mutant('raise ValueError("no size")', "import os; os._exit(1)"))
        assert hanging.killed_by == "tests/test_small.py::test_no_size"
        at_import = tries.tried(removal("early.py", EARLY, "size * 2", "size * 3"))
        assert at_import.killed_by == "tests/test_early.py::test_it_fits"
        assert tries.tried(removal("early.py", EARLY, "size * 2", "size + size")).killed_by is None
    assert (tree / "src" / "ctxfs" / "small.py").read_text() == SMALL
