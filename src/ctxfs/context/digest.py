r"""What a placeholder says about the content that it stands for. Pure, deterministic, linear, and without a model.

Size in lines and tokens first, then what fits the content: the shape of a JSON value, the header and first rows of a
table, the outline of source code, else head, error lines and tail. Every line of the content is shown with its number
(1-based; "\n" is the only separator), so that a reader can ask for that place at once, and so that nothing in a digest
can be taken for a placeholder of its own.
"""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

import re2

from ctxfs.context.encoding import readable_text
from ctxfs.context.json_shape import PREFIX_CHARS, Detail, JsonPrefix, parse_prefix, shape
from ctxfs.llm.messages import Content
from ctxfs.steps import checkpoint
from ctxfs.tokens import TokenCounter, count_content

__all__ = [
    "DEFAULT_BUDGET_TOKENS",
    "SECTIONS",
    "Pick",
    "Section",
    "clean_line",
    "describe",
    "error_lines",
    "line_count",
]

DEFAULT_BUDGET_TOKENS: Final = 200

Section = Callable[[str, int, TokenCounter], str]
"""A part of a digest: from the content's text, a budget in tokens and a counter to text within the budget, or ""."""

_SLICE_CHARS = 131_072
_LINE_CHARS = 160
_SAMPLE_LINES = 24
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

_UNPRINTABLE = {
    **dict.fromkeys([*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029], " "),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")


def _re2(pattern: bytes) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(pattern, options)


_ERROR = _re2(
    rb"(?im)\b(?:errors?|exception|traceback|fatal|panic|panicked|critical|fail|fails|failed|failures?|segfault|"
    rb"segmentation fault|core dumped|cannot|denied|not found|timed out|abort|aborted)\b"
    rb"|(?-i:[a-z](?:Error|Exception)\b)|^E   "
)
_RUN_OUTPUT = _re2(rb"(?m)^(?:E   |FAILED |ERROR |Traceback \(most recent call last\)|error(?:\[E\d+\])?: |npm ERR!)")
_NO_ERROR = re.compile(r"\b(?:0|no|without)\s+(?:errors?|fail(?:ed|ures?)?|exceptions?)\b", re.IGNORECASE)
_NUMBERED = r"[ \t]{0,8}\d{1,7}(?:→|\t|[:|] ?)"
_CODE = re.compile(
    rf"(?:{_NUMBERED})?[ \t]{{0,16}}"
    r"(?:(?:export|default|declare|public|private|protected|internal|static|final|abstract|sealed|override|async|"
    r"pub(?:\([a-z]+\))?|unsafe|extern|const|inline|virtual) ){0,4}"
    r"(?:(?:def|class|fn|func|function\*?|struct|enum|trait|impl|interface|module|namespace|protocol|mod|macro_rules!)"
    r"[ \t<(]+[A-Za-z_$(<*&'\[]|type \w{1,64}[^=\n]{0,64}(?:=|struct|interface)"
    r"|(?:const|let|var) [\w$]{1,64} ?(?:: ?[^=\n]{1,80})?= ?(?:async ?)?"
    r"(?:function\b|\([^()\n]{0,120}\) ?(?::[^=\n]{1,80})?=>))"
)
_HEADING = re.compile(rf"(?:{_NUMBERED})?#{{1,6}} \S")
_HEADER_CELL = re.compile(r"[^\W\d][\w .()/%#-]{0,39}")
_TABLE_RULE = re.compile(r"[ \t]{0,8}\|?(?:[ \t]*:?-+:?[ \t]*\|)*[ \t]*:?-+:?[ \t]*\|?[ \t]*")


@dataclass(frozen=True, slots=True)
class Pick:
    """A line worth showing: its number and its characters' place in the text (cut to what is ever shown)."""

    number: int
    start: int
    end: int


def describe(
    content: Content,
    *,
    budget_tokens: int = DEFAULT_BUDGET_TOKENS,
    counter: TokenCounter,
    content_tokens: int | None = None,
) -> str:
    """What stands after the placeholder's three lines; "" when there is nothing to say within the budget.

    Args:
        content: what leaves the context.
        budget_tokens: upper bound on the result by ``counter``; 0 means no digest.
        counter: counts tokens.
        content_tokens: the content's own size, if it is known; None counts it, a very long one by samples ("about").
    """
    if budget_tokens <= 0 or not content:
        return ""
    text = readable_text(content)
    digest = _size(content, text, counter, content_tokens)
    if counter.count(digest) > budget_tokens:
        return ""
    for section in SECTIONS:
        left = budget_tokens - counter.count(digest) - 1
        added = section(text, left, counter) if left > 0 else ""
        candidate = f"{digest}\n{added}"
        if added and counter.count(candidate) <= budget_tokens:
            digest = candidate
    return digest


def _size(content: Content, text: str, counter: TokenCounter, content_tokens: int | None) -> str:
    lines = _plural(line_count(text), "line")
    if content_tokens is not None:
        tokens = _plural(content_tokens, "token")
    elif len(text) <= _COUNTED_WHOLE_CHARS:
        tokens = _plural(count_content(counter, content), "token")
    else:
        tokens = f"about {_estimated_tokens(text, counter):,} tokens"
    if isinstance(content, str):
        return f"{lines}, {tokens}."
    kinds: dict[str, int] = {}
    for block in content:
        kind = clean_line(str(block.get("type", "unknown")))[:32]
        kinds[kind] = kinds.get(kind, 0) + 1
    listed = ", ".join(f"{n} {kind}" for kind, n in islice(kinds.items(), 8))
    return f"{_plural(len(content), 'block')} ({listed}); text: {lines}; {tokens}."


def _estimated_tokens(text: str, counter: TokenCounter) -> int:
    """From eight samples, to two leading digits: counting megabytes would cost more than a digest is worth."""
    step = len(text) // 8
    sampled = sum(counter.count(text[i * step : i * step + 4096]) for i in range(8))
    estimate = sampled * len(text) // (8 * 4096)
    return round(estimate, 2 - len(str(estimate)))


def _structure(text: str, budget_tokens: int, counter: TokenCounter) -> str:
    """What fits the content best, and only that."""
    head = _head_lines(text)
    if (parsed := parse_prefix(text)) is not None:
        return _fitting_shape("JSON: ", parsed, budget_tokens, counter)
    if (record := _json_lines(text, head)) is not None:
        return _fitting_shape("JSON lines, each like ", record, budget_tokens, counter)
    if title := _table(text, head):
        return _numbered(text, title, head[:_TABLE_LINES], budget_tokens, counter)
    if outline := _outline(text):
        ranked = sorted(outline, key=lambda p: _indent(text, p))
        return _numbered(text, "", ranked, budget_tokens, counter)
    return _log(text, budget_tokens, counter)


SECTIONS: Final[tuple[Section, ...]] = (_structure,)
"""What follows the size, in order; each gets what the sections before it left of the budget."""


def _fitting_shape(title: str, parsed: JsonPrefix, budget_tokens: int, counter: TokenCounter) -> str:
    for detail in _SHAPES:
        candidate = title + clean_line(shape(parsed, detail))
        if len(candidate) <= budget_tokens * 16 and counter.count(candidate) <= budget_tokens:
            return candidate
    return ""


def _json_lines(text: str, head: Sequence[Pick]) -> JsonPrefix | None:
    """The first record, when the first lines are JSON objects."""
    records = [p for p in head if p.end > p.start][:3]
    if len(records) < 2:
        return None
    parsed = [parse_prefix(text[p.start : min(p.end, p.start + PREFIX_CHARS + 1)]) for p in records]
    return parsed[0] if all(p is not None and isinstance(p.value, dict) for p in parsed) else None


def _table(text: str, head: Sequence[Pick]) -> str:
    """What kind of table this is, with its columns; "" when it is none."""
    sample = [text[p.start : min(p.end, p.start + 4096)].rstrip("\r") for p in head]
    if all(re.match(_NUMBERED, line) for line in sample):
        sample = [re.sub(rf"\A{_NUMBERED}", "", line) for line in sample]
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


def _outline(text: str) -> list[Pick]:
    """Lines that define something, or the headings of a document; [] when it does not look like either."""
    if len(text) > _MAX_SOURCE_CHARS or line_count(text) > _MAX_SOURCE_LINES or _is_run_output(text):
        return []
    code, headings, total = [], [], 0
    for pick in _lines(text):
        total += 1
        if _CODE.match(text, pick.start, pick.end):
            code.append(pick)
        elif _HEADING.match(text, pick.start, pick.end):
            headings.append(pick)
    for found, density in ((code, 80), (headings, 120)):
        if len(found) >= 3 and len(found) * density >= total:
            return found
    return []


def _indent(text: str, pick: Pick) -> int:
    line = re.sub(rf"\A{_NUMBERED}", "", text[pick.start : min(pick.end, pick.start + 64)])
    return len(line) - len(line.lstrip())


def _log(text: str, budget_tokens: int, counter: TokenCounter) -> str:
    """Errors, head and tail by turns, most telling first; the error count as the title."""
    found = error_lines(text)
    errors = list(islice(found, _MAX_ERROR_LINES))
    more = next(found, None) is not None
    head, tail = _head_lines(text), _tail_lines(text)
    title = f"{'Over ' if more else ''}{_plural(len(errors), 'line')} with errors." if errors else ""
    spread = [*errors[:1], *errors[-1:], *errors[1:-1]]
    return _numbered(text, title, _interleaved(tail, head, spread), budget_tokens, counter)


def _interleaved(*groups: Sequence[Pick]) -> list[Pick]:
    longest = max(len(group) for group in groups)
    return [group[i] for i in range(min(longest, _MAX_PICKS)) for group in groups if i < len(group)]


def error_lines(text: str, *, number: int = 1, begin: int = 0) -> Iterator[Pick]:
    """Find the lines that speak of an error, from the line ``number`` on, which begins at the character ``begin``."""
    last, counted = 0, begin  # the line ``number`` begins at the character ``counted``
    for start, end in _slices(text, begin):
        data = text[start:end].encode("utf-8", "surrogatepass")
        position, char = 0, start  # the same place in bytes and in characters, always at a line's begin
        while match := _ERROR.search(data, position):
            line_start = max(data.rfind(b"\n", position, match.start()) + 1, position)
            line_end = data.find(b"\n", match.start())
            line_end = len(data) if line_end < 0 else line_end + 1
            char += _chars(data[position:line_start])
            number, counted = number + text.count("\n", counted, char), char
            line = data[line_start:line_end]
            pick = _error_pick(text, number, char, char + _chars(line), _chars(data[line_start : match.start()]))
            said = _NO_ERROR.search(text, pick.start, min(pick.end, pick.start + _LINE_CHARS))
            if number > last and not said:  # a line longer than a slice is found again
                last = number
                yield pick
            char += _chars(line)
            position = line_end


def _error_pick(text: str, number: int, start: int, end: int, offset: int) -> Pick:
    """The line from its begin or, where the error stands far to the right, from a little before the error."""
    begin = start if offset < _LINE_CHARS // 2 else start + offset - 24
    return Pick(number, begin, end - 1 if text[end - 1] == "\n" else end)


def _chars(data: bytes) -> int:
    return len(data.decode("utf-8", "surrogatepass"))


def _is_run_output(text: str) -> bool:
    return any(_RUN_OUTPUT.search(text[a:b].encode("utf-8", "surrogatepass")) for a, b in _slices(text))


def _numbered(text: str, title: str, ranked: Sequence[Pick], budget_tokens: int, counter: TokenCounter) -> str:
    """As many of the lines as fit, the first ones first, shown in the order of the text."""
    width = max(48, min(_LINE_CHARS, budget_tokens // 2))
    chosen: dict[int, str] = {}
    used = counter.count(title) + 1
    misses = 0
    for pick in ranked[:_MAX_PICKS]:
        if pick.number in chosen or not (line := _shown(text, pick, width)):
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


def _shown(text: str, pick: Pick, width: int) -> str:
    """The line with its number, one copy of it only if the content numbers its lines itself; "" for a blank line."""
    raw = text[pick.start : min(pick.end, pick.start + 2 * width)]
    numbered = re.match(_NUMBERED, raw)
    if numbered and numbered[0].strip("→\t:| ") == str(pick.number):
        raw = raw[numbered.end() :]
    raw = clean_line(raw).rstrip()
    if not raw.strip():
        return ""
    cut_left = "…" if pick.start and text[pick.start - 1] != "\n" else ""
    cut_right = "…" if len(raw) > width or pick.end - pick.start > 2 * width else ""
    return f"{pick.number}: {cut_left}{raw[:width]}{cut_right}"


def clean_line(line: str) -> str:
    """One printable line: no control characters, no terminal colours, no lone surrogates."""
    return line if line.isprintable() else _ANSI.sub("", line).translate(_UNPRINTABLE)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def line_count(text: str) -> int:
    r"""How many lines the text has, as ``\n`` separates them; what follows the last one counts."""
    ends = sum(text.count("\n", i, i + _SLICE_CHARS) for i in range(0, len(text), _SLICE_CHARS))
    return ends + (not text.endswith("\n")) if text else 0


def _slices(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """The text from ``start`` on in slices that end at a line's end, unless a line is longer than a slice."""
    while start < len(text):
        checkpoint()
        end = min(start + _SLICE_CHARS, len(text))
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield start, end
        start = end


def _lines(text: str) -> Iterator[Pick]:
    start, number = 0, 1
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield Pick(number, start, end)
        start, number = end + 1, number + 1


def _head_lines(text: str) -> list[Pick]:
    return list(islice(_lines(text), _SAMPLE_LINES))


def _tail_lines(text: str) -> list[Pick]:
    """The last lines, the last one first."""
    found: list[Pick] = []
    number, end = line_count(text), len(text) - text.endswith("\n")
    while number > 0 and len(found) < _SAMPLE_LINES:
        start = text.rfind("\n", 0, end) + 1
        found.append(Pick(number, start, end))
        number, end = number - 1, start - 1
    return found
