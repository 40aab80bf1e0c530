"""The mutants of a module: its source with one small change, as text, with every other line where it was.

The changes are the ones that people make by mistake: a comparison off by its edge, a condition the wrong way round,
a number off by one (a large one half or double), a statement left out, two arguments swapped. What no test should pin
is left alone: docstrings, annotations, decorators, log lines, the text of errors, tables and tuned numbers.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Mutant", "mutants_of", "removal"]

_SWAPPED: dict[type[ast.AST], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitOr: "&",
    ast.BitAnd: "|",
    ast.And: "or",
    ast.Or: "and",
}
_SIGNS: dict[type[ast.AST], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitOr: "|",
    ast.BitAnd: "&",
    ast.And: "and",
    ast.Or: "or",
}
LARGE = 50
_OTHER_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SYMMETRIC = frozenset({"min", "max", "isinstance", "zip", "cast", "isdisjoint"})
_UNTOUCHED = (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A module with ``before`` (at ``start``, in characters) replaced by ``after``.

    ``line`` counts from 1, ``column`` from 0, after the indentation of ``source_line``.
    """

    module: str
    line: int
    column: int
    start: int
    before: str
    after: str
    source_line: str

    @property
    def key(self) -> str:
        """What it is called."""
        return f"{self.module}:{self.line}:{self.column}: {_short(self.before)} -> {_short(self.after)}"

    @property
    def rank(self) -> str:
        """Where it stands in the sample: at random, and the same wherever its line moves to."""
        return hashlib.sha256(
            f"{self.module}|{self.source_line}|{self.column}|{self.before}|{self.after}".encode()
        ).hexdigest()

    def applied(self, source: str) -> str:
        """Return the module's source with the change in it."""
        assert source[self.start : self.start + len(self.before)] == self.before
        lost = self.before.count("\n") - self.after.count("\n")
        return source[: self.start] + self.after + "\n" * lost + source[self.start + len(self.before) :]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:40]} … {line[-17:]}"


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Return every mutant of a module, in the order of its lines."""
    made = {(m.start, m.before, m.after): m for m in _Finder(module, source).all()}
    return sorted(made.values(), key=lambda mutant: (mutant.start, mutant.before, mutant.after))


def removal(module: str, source: str, before: str, after: str) -> Mutant:
    """Return the mutant in which ``before``, which stands once in ``source``, is ``after``."""
    if source.count(before) != 1:
        raise LookupError(f"{module}: {source.count(before)} times, not once: {before!r}")
    return _mutant(module, source, source.index(before), before, after)


def _mutant(module: str, source: str, start: int, before: str, after: str) -> Mutant:
    line_start = source.rfind("\n", 0, start) + 1
    line = source[line_start:].split("\n", 1)[0]
    return Mutant(
        module=module,
        line=source.count("\n", 0, start) + 1,
        column=start - line_start - (len(line) - len(line.lstrip())),
        start=start,
        before=before,
        after=after,
        source_line=line.strip(),
    )


class _Finder:
    """Walks a module's syntax tree; every change is made in its text."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def all(self) -> Iterator[Mutant]:
        yield from self._children(ast.parse(self._source))

    def _at(self, line: int, column: int) -> int:
        text = self._lines[line - 1]
        return self._starts[line - 1] + len(text.encode()[:column].decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self._source[start:end]

    def _made(self, start: int, end: int, after: str) -> Mutant:
        return _mutant(self._module, self._source, start, self._source[start:end], after)

    def _instead(self, node: ast.expr | ast.stmt, after: str) -> Mutant:
        return self._made(*self._span(node), after)

    def _negated(self, node: ast.expr) -> Mutant:
        return self._instead(node, f"(not ({self._text(node)}))")

    # ---- which nodes are looked at

    def _children(self, node: ast.AST) -> Iterator[Mutant]:
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "type_comment", "pattern"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._of(child, node)

    def _of(self, node: ast.AST, above: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.stmt):
            if _is_left_alone(node) or _is_data(node, above):
                return
            yield from self._statement(node, above)
        elif isinstance(node, ast.expr):
            yield from self._expression(node)
        elif isinstance(node, ast.comprehension):
            yield from (self._negated(condition) for condition in node.ifs if not _has_opposite(condition))
        if isinstance(node, ast.If) and "darwin" in ast.unparse(node.test) and sys.platform != "darwin":
            node = ast.Module(body=node.orelse, type_ignores=[])  # the rest runs on macOS only
        if not isinstance(node, _UNTOUCHED):
            yield from self._children(node)

    def _statement(self, node: ast.stmt, above: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.If():
                if not _has_opposite(node.test):
                    yield self._negated(node.test)
                if not node.orelse and isinstance(node.body[-1], ast.Return | ast.Continue | ast.Break):
                    yield self._instead(node, "pass")
            case ast.Return(value=ast.expr() as value) if self._text(value) not in {"None", "False", '""', "0"}:
                yield self._instead(node, "return None")
            case ast.AugAssign():
                yield from self._sign(node.target, node.op, node.value, suffix="=")
        if _can_go(node, above):
            yield self._instead(node, "pass")

    def _expression(self, node: ast.expr) -> Iterator[Mutant]:
        match node:
            case ast.Compare():
                for left, sign, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                    yield from self._sign(left, sign, right)
            case ast.BoolOp():
                for left, right in pairwise(node.values):
                    yield from self._sign(left, node.op, right)
            case ast.BinOp() if not _is_text(node.left) and not _is_text(node.right):
                yield from self._sign(node.left, node.op, node.right)
            case ast.UnaryOp(op=ast.Not()):
                yield self._instead(node, f"({self._text(node.operand)})")
            case ast.IfExp() if not _has_opposite(node.test):
                yield self._negated(node.test)
            case ast.Constant():
                yield from (self._instead(node, other) for other in _others(node.value))
            case ast.Subscript(slice=ast.Slice() as part):
                edges = (edge for edge in (part.lower, part.upper) if edge is not None)
                yield from (self._instead(edge, f"({self._text(edge)}) + 1") for edge in edges)
            case ast.Call():
                yield from self._call(node)

    def _sign(self, left: ast.expr, sign: ast.AST, right: ast.expr, suffix: str = "") -> Iterator[Mutant]:
        if type(sign) not in _SIGNS:
            return
        low, high = self._span(left)[1], self._span(right)[0]
        at = self._source.find(_SIGNS[type(sign)] + suffix, low, high)
        if at >= 0:
            yield self._made(at, at + len(_SIGNS[type(sign)] + suffix), _SWAPPED[type(sign)] + suffix)

    def _call(self, node: ast.Call) -> Iterator[Mutant]:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if isinstance(node.func, ast.Name) and name in _OTHER_NAMES:
            yield self._instead(node.func, _OTHER_NAMES[name])
        if name == "suppress":
            start, end = self._span(node)
            yield self._made(start, end, "suppress()")
        if (
            len(node.args) >= 2
            and name not in _SYMMETRIC
            and not any(isinstance(a, ast.Starred) for a in node.args[:2])
        ):
            first, second = node.args[:2]
            start, end = self._span(first)[0], self._span(second)[1]
            between = self._source[self._span(first)[1] : self._span(second)[0]]
            if self._text(first) != self._text(second):
                yield self._made(start, end, self._text(second) + between + self._text(first))


def _has_opposite(condition: ast.expr) -> bool:
    """Whether another change turns the condition round already."""
    if isinstance(condition, ast.Compare) and len(condition.ops) == 1:
        return isinstance(condition.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn)
    return isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _can_go(node: ast.stmt, above: ast.AST) -> bool:
    """Whether the code still runs, somehow, without the statement."""
    if isinstance(node, ast.Raise | ast.Delete | ast.Continue | ast.Break | ast.AugAssign):
        return True
    if isinstance(node, ast.Assign):
        return not isinstance(above, ast.Module | ast.ClassDef) and not isinstance(
            node.targets[0], ast.Name | ast.Tuple
        )
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await | ast.Yield | ast.YieldFrom)


def _others(value: object) -> list[str]:
    """What else a constant could be: a number off by one, a large one half or double."""
    if isinstance(value, bool):
        return [str(not value)]
    if not isinstance(value, int | float):
        return []
    if value >= LARGE:
        return [f"{value * 2}", f"{value // 2}"]
    return [f"{value + 1}"] + ([f"{value - 1}" if value >= 1 else "0"] if value else [])


def _is_data(node: ast.stmt, above: ast.AST) -> bool:
    """Tables of a module, and numbers that fields have by default: a test could only repeat them."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    if isinstance(above, ast.Module):
        return any(isinstance(part, ast.Dict) for part in ast.walk(node.value))
    default = node.value
    return isinstance(above, ast.ClassDef) and isinstance(default, ast.Constant) and type(default.value) in {int, float}


def _is_left_alone(node: ast.stmt) -> bool:
    """Docstrings, log lines, names for the public and for a type checker, and interfaces without code."""
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.ClassDef):
        return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).startswith("logger.")
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id in {"__all__", "__slots__"} or isinstance(node.value, ast.BinOp | ast.Subscript)
    return False
