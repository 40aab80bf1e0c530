r"""What a placeholder says about the content that it stands for. Pure, deterministic, linear, and without a model.

Size in lines and tokens first, then what fits the content: the shape of a JSON value, the header and first rows of a
table, the outline of source code, else head, error lines and tail. Every line of the content is shown with its number
(1-based; "\n" is the only separator), so that a reader can ask for that place at once, and so that nothing in a digest
can be taken for a placeholder of its own.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, takewhile, zip_longest
from typing import Final, NamedTuple

from ctxfs.eviction.placeholder.lines import (
    ERROR,
    LINE_CHARS,
    NUMBERED,
    Found,
    Pick,
    clean_line,
    error_in,
    error_lines,
    errors_of,
    head_lines,
    latin1_re2,
    line_count,
    lines_with,
    plural,
    rest_of_line_re2,
    shown,
    slices,
    tail_lines,
)
from ctxfs.messages.messages import Content, readable_text
from ctxfs.messages.tokens import TokenCounter, count_content
from ctxfs.text.jsontext.shape import PREFIX_CHARS, Detail, JsonPrefix, parse_prefix, shape

DEFAULT_BUDGET_TOKENS: Final = 200

_TABLE_LINES = 6

_MAX_PICKS = 400

_MAX_ERROR_LINES = 2_000

_MAX_SOURCE_CHARS = 1_048_576

_COUNTED_WHOLE_CHARS = 262_144

_MAX_SOURCE_LINES = 40_000

_SHAPES = (
    Detail(depth=5, keys=40, value_chars=48),
    Detail(depth=4, keys=24, value_chars=24),
    Detail(depth=3, keys=16, value_chars=16),
    Detail(depth=3, keys=12, value_chars=0),
    Detail(depth=2, keys=8, value_chars=0),
    Detail(depth=1, keys=8, value_chars=0),
    Detail(depth=1, keys=3, value_chars=0),
)

_RUN_OUTPUT = latin1_re2(
    rb"(?m)^(?:E   |FAILED |ERROR |Traceback \(most recent call last\)|error(?:\[E\d+\])?: |npm ERR!)"
)

_MODIFIERS = (
    r"(?:(?:export|default|declare|public|private|protected|internal|static|final|abstract|sealed|override|async|"
    r"pub(?:\([a-z]+\))?|unsafe|extern|const|inline|virtual) ){0,4}"
)

_DEFINES = (
    r"(?:def|class|fn|func|function\*?|struct|enum|trait|impl|interface|module|namespace|protocol|mod|macro_rules!)"
    r"[ \t<(]"
)

_CODE = re.compile(
    rf"(?:{NUMBERED})?[ \t]{{0,16}}{_MODIFIERS}(?:{_DEFINES}+[A-Za-z_$(<*&'\[]"
    r"|type \w{1,64}[^=\n]{0,64}(?:=|struct|interface)"
    r"|(?:const|let|var) [\w$]{1,64} ?(?:: ?[^=\n]{1,80})?= ?(?:async ?)?"
    r"(?:function\b|\([^()\n]{0,120}\) ?(?::[^=\n]{1,80})?=>))"
)

_HEADING = re.compile(rf"(?:{NUMBERED})?#{{1,6}} \S")

_TELLING = rest_of_line_re2(
    rb"(?m)^(?:[ \t]{0,8}[0-9\x80-\xff]{1,28}(?:\xe2\x86\x92|\t|[:|] ?))?(?:#{1,6} |[ \t]{0,16}"
    + f"{_MODIFIERS}(?:{_DEFINES}|type |(?:const|let|var) ))".encode()
    + b"|"
    + ERROR
)
"""Finds every line with an error, and every line that ``_CODE`` or ``_HEADING`` matches, and a few more."""

_MAY_BE_TABLE = re.compile(r"[^\n]{0,4096}?[|\t,;]")
"""What separates the columns stands in the first line already."""

_HEADER_CELL = re.compile(r"[^\W\d][\w .()/%#-]{0,39}")

_TABLE_RULE = re.compile(r"[ \t]{0,8}\|?(?:[ \t]*:?-+:?[ \t]*\|)*[ \t]*:?-+:?[ \t]*\|?[ \t]*")


def describe(
    content: Content,
    *,
    budget_tokens: int = DEFAULT_BUDGET_TOKENS,
    counter: TokenCounter,
    content_tokens: int | None = None,
) -> str:
    """What stands after the placeholder's three lines; "" when there is nothing to say within the budget.

    Args:
        content: the content that is evicted.
        budget_tokens: upper bound on the result by ``counter``; 0 means no digest.
        counter: counts tokens.
        content_tokens: the content's own size, if it is known; None counts it, a very long one by samples ("about").
    """
    if budget_tokens <= 0 or not content:
        return ""
    text = readable_text(content)
    lines = line_count(text)
    size = _size(content, text, lines, counter, content_tokens)
    left = budget_tokens - counter.count(size)
    if left < 0:
        return ""
    structure = _structure(text, lines, left - 1, counter) if left > 1 else ""
    digest = f"{size}\n{structure}"
    return digest if structure and counter.count(digest) <= budget_tokens else size


def _size(content: Content, text: str, line_number: int, counter: TokenCounter, content_tokens: int | None) -> str:
    lines = plural(line_number, "line")
    if content_tokens is not None:
        tokens = plural(content_tokens, "token")
    elif len(text) <= _COUNTED_WHOLE_CHARS:
        tokens = plural(count_content(counter, content), "token")
    else:
        tokens = f"about {_estimated_tokens(text, counter):,} tokens"
    if isinstance(content, str):
        return f"{lines}, {tokens}."
    kinds: dict[str, int] = {}
    for block in content:
        kind = clean_line(str(block.get("type", "unknown")))[:32]
        kinds[kind] = kinds.get(kind, 0) + 1
    listed = ", ".join(f"{n} {kind}" for kind, n in islice(kinds.items(), 8))
    return f"{plural(len(content), 'block')} ({listed}); text: {lines}; {tokens}."


def _estimated_tokens(text: str, counter: TokenCounter) -> int:
    """From eight samples, to two leading digits: counting megabytes would cost more than a digest is worth."""
    step = len(text) // 8
    sampled = sum(counter.count(text[i * step : i * step + 4096]) for i in range(8))
    estimate = sampled * len(text) // (8 * 4096)
    return round(estimate, 2 - len(str(estimate)))


def _structure(text: str, lines: int, budget_tokens: int, counter: TokenCounter) -> str:
    """The one description that suits a text of ``lines`` lines best; "" when none fits the budget."""
    outline, errors = outline_of(text, lines, budget_tokens, counter)
    return outline if errors is None else _log(text, lines, errors, budget_tokens, counter)


def outline_of(text: str, lines: int, budget_tokens: int, counter: TokenCounter) -> tuple[str, Iterator[Pick] | None]:
    """The outline of a text that has ``lines`` lines, and None; of a text that has none: "", and its lines with errors.

    That is the shape of a JSON value, a table's header and first rows, or the lines of source code that define
    something, or a document's headings; "" if none fits the budget.
    """
    if (parsed := parse_prefix(text)) is not None:
        return _fitting_shape("JSON: ", parsed, budget_tokens, counter), None
    if (record := _json_lines(text)) is not None:
        return _fitting_shape("JSON lines, each like ", record, budget_tokens, counter), None
    if title := _table(text):
        return _numbered(text, title, islice(head_lines(text), _TABLE_LINES), budget_tokens, counter), None
    if len(text) > _MAX_SOURCE_CHARS or lines > _MAX_SOURCE_LINES:
        return "", error_lines(text)
    telling = _telling_lines(text)
    if outline := _outline(text, lines, telling):
        ranked = sorted(outline, key=lambda p: _indent(text, p))
        return _numbered(text, "", ranked, budget_tokens, counter), None
    return "", errors_of(text, telling.errors)


def _fitting_shape(title: str, parsed: JsonPrefix, budget_tokens: int, counter: TokenCounter) -> str:
    for detail in _SHAPES:
        candidate = title + clean_line(shape(parsed, detail))
        if len(candidate) <= budget_tokens * 16 and counter.count(candidate) <= budget_tokens:
            return candidate
    return ""


def _json_lines(text: str) -> JsonPrefix | None:
    """The first record, when the first lines are JSON objects."""
    records = list(islice((p for p in head_lines(text) if p.end > p.start), 3))
    if len(records) < 2:
        return None
    parsed = (parse_prefix(text[p.start : min(p.end, p.start + PREFIX_CHARS + 1)]) for p in records)
    objects = list(takewhile(lambda p: p is not None and isinstance(p.value, dict), parsed))
    return objects[0] if len(objects) == len(records) else None


def _table(text: str) -> str:
    """The kind of table, with its columns; "" if the text is not a table."""
    if not _MAY_BE_TABLE.match(text):
        return ""
    head = list(head_lines(text))
    sample = [text[p.start : min(p.end, p.start + 4096)].rstrip("\r") for p in head]
    if all(re.match(NUMBERED, line) for line in sample):
        sample = [re.sub(rf"\A{NUMBERED}", "", line) for line in sample]
    if len(sample) >= 3 and "|" in sample[0] and _TABLE_RULE.fullmatch(sample[1]):
        return "Markdown table:"
    for delimiter, kind, least in (
        ("\t", "Tab-separated", 2),
        (",", "Comma-separated", 3),
        (";", "Semicolon-separated", 3),
    ):
        columns = _columns(sample, delimiter)
        if columns >= least or (columns == 2 and len(sample) >= 8):
            return f"{kind} table, {columns} columns:"
    return ""


def _columns(sample: Sequence[str], delimiter: str) -> int:
    """The number of columns, when all lines agree; 0 when they do not, or are prose or code with that sign in it."""
    if len(sample) < 3 or not all(delimiter in line for line in sample):
        return 0
    try:
        rows = list(csv.reader(sample, delimiter=delimiter, strict=True))
    except csv.Error:
        return 0
    widths = {len(row) for row in rows}
    if len(widths) > 1 or not any(row[0].strip() for row in rows):  # where all first cells are empty, they indent
        return 0
    columns = widths.pop()
    if delimiter == "\t":
        return columns
    has_header = columns > 2 or all(map(_HEADER_CELL.fullmatch, rows[0]))  # a log has its one comma in the time
    return columns if has_header and all(map(_is_cell, chain.from_iterable(rows))) else 0


def _is_cell(cell: str) -> bool:
    """Not the rest of a sentence, which goes on after a space, and not half of a call."""
    return not (cell.startswith(" ") and " " in cell.strip()) and all(
        cell.count(opened) == cell.count(closed) for opened, closed in ("()", "[]", "{}")
    )


class _Telling(NamedTuple):
    """Lines that define something, the headings of a document, and lines in which something says "error"."""

    code: list[Pick]
    headings: list[Pick]
    errors: list[Found]


def _telling_lines(text: str) -> _Telling:
    """Find them in one pass."""
    found = _Telling([], [], [])
    for line in lines_with(_TELLING, text):
        if line.offset:  # nothing at its begin: what was found says "error"
            found.errors.append(line)
            continue
        if (error := error_in(text, line)) is not None:
            found.errors.append(error)
        if line.start and text[line.start - 1] != "\n":
            continue  # the rest of a line that is longer than a slice
        pick = Pick(line.number, line.start, line.end)
        if _CODE.match(text, pick.start, pick.end):
            found.code.append(pick)
        elif _HEADING.match(text, pick.start, pick.end):
            found.headings.append(pick)
    return found


def _outline(text: str, lines: int, telling: _Telling) -> list[Pick]:
    """Lines that define something, or the headings of a document; [] when it does not look like either."""
    for picks, density in ((telling.code, 80), (telling.headings, 120)):
        if len(picks) >= 3 and len(picks) * density >= lines:
            return [] if _is_run_output(text) else picks
    return []


def _indent(text: str, pick: Pick) -> int:
    line = re.sub(rf"\A{NUMBERED}", "", text[pick.start : min(pick.end, pick.start + 64)])
    return len(line) - len(line.lstrip())


def _log(text: str, lines: int, found: Iterator[Pick], budget_tokens: int, counter: TokenCounter) -> str:
    """Errors, head and tail by turns, most telling first; the error count as the title."""
    errors = list(islice(found, _MAX_ERROR_LINES))
    more = next(found, None) is not None
    title = f"{'Over ' if more else ''}{plural(len(errors), 'line')} with errors." if errors else ""
    spread = [*errors[:1], *errors[-1:], *errors[1:-1]]
    ranked = _interleaved(tail_lines(text, lines), head_lines(text), spread)
    return _numbered(text, title, ranked, budget_tokens, counter)


def _interleaved(*groups: Iterable[Pick]) -> Iterator[Pick]:
    """The first of each group, the second of each, and so on."""
    return filter(None, chain.from_iterable(zip_longest(*groups)))


def _is_run_output(text: str) -> bool:
    return any(_RUN_OUTPUT.search(text[a:b].encode("utf-8", "surrogatepass")) for a, b in slices(text))


def _numbered(text: str, title: str, ranked: Iterable[Pick], budget_tokens: int, counter: TokenCounter) -> str:
    """As many of the lines as fit, the first ones first, shown in the order of the text."""
    width = max(48, min(LINE_CHARS, budget_tokens // 2))
    chosen: dict[int, str] = {}
    used = counter.count(title) + 1
    misses = 0
    for pick in islice(ranked, _MAX_PICKS):
        if pick.number in chosen or not (line := shown(text, pick, width)):
            continue
        cost = counter.count(line) + 1
        if used + cost > budget_tokens:
            misses += 1
            if misses >= 8:
                break
            continue
        chosen[pick.number] = line
        used += cost
    while chosen:
        result = "\n".join([*([title] if title else []), *(chosen[n] for n in sorted(chosen))])
        if counter.count(result) <= budget_tokens:
            return result
        chosen.popitem()
    return ""
