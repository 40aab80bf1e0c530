"""The text that stands for content, or for a call's large arguments, that left the context. It is written only here.

Follows "Context FileSystem 上下文卸载功能": the three lines come first and stay exactly so.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.items import ContentRange
from ctxfs.text.jsontext import codec as json_codec

HEADER = "[Content offloaded]"

SHORT_HEADER = f"{HEADER.removesuffix(']')}: "
"""What a placeholder of one line begins with: its short name is found by the tools of ctxfs alone."""

READ_TOOL = "Read"
"""The name of the tool that opens the files which placeholders name, unless another one is set."""


READING_TOOLS = ("context_tail", "context_grep", "context_read", "context_list")
"""The other tools of ctxfs with which a model reads what was stored."""


_ANY_READER = "If you have a tool that opens files, it shows the details."


def reading_tools(names: Iterable[str], *, reader: str = READ_TOOL) -> tuple[str, ...]:
    """Those of ``names`` that read stored output back, as far as ctxfs knows them; ``reader`` opens files.

    A tool of ctxfs counts under the name that a host gives it, too: ``mcp__ctxfs__context_read``.
    """
    known = _by_own_name(names)
    wanted = dict.fromkeys([*READING_TOOLS, own_name(reader)])
    return tuple(known[name] for name in wanted if name in known)


def own_name(tool: str) -> str:
    """A tool's name without the server that a host puts before it, and in one case."""
    return tool.rpartition("__")[2].casefold()


def _by_own_name(tools: Iterable[str]) -> dict[str, str]:
    return {own_name(tool): tool for tool in tools}


def render(path: str, digest: str = "", *, reader: str | None = READ_TOOL, short: str | None = None) -> str:
    """The placeholder for content stored at ``path`` (absolute), then its digest, if there is one.

    ``reader`` is the name of the tool with which the model opens that file, ``short`` a name by which it finds it too:
    then the placeholder has one line instead of three. ``reader`` None: it is not known whether any tool opens files.
    """
    if reader is not None and short is not None:
        placeholder = _in_one_line(reader, short)
    else:
        how = _ANY_READER if reader is None else f"Use {reader} tool to view details."
        placeholder = f"{HEADER}\nPath: {path}\n{how}"
    return f"{placeholder}\n{digest}" if digest else placeholder


def _in_one_line(reader: str, what: str) -> str:
    return f"{SHORT_HEADER}{reader} {what}]"


def render_range(source: ContentRange, *, reader: str | None = READ_TOOL, short: str | None = None) -> str:
    """The placeholder for a read-back: it names the first file and the lines, since no copy is stored."""
    first, last = source.first_line, source.last_line
    if reader is not None and short is not None:
        return _in_one_line(reader, f"{short}, offset={first}, limit={last - first + 1}")
    lines = f"Lines {first}-{last} of it were here: offset={first}, limit={last - first + 1}"
    return render(source.path, lines, reader=reader)


def render_materialized(
    *, title: str, size: str, ref: str, advice: str, passages: Mapping[str, Sequence[str]], stored: str = "in full"
) -> str:
    """The placeholder of "Tool Output Materialization": summary, ``ContextRef``, advice and numbered passages.

    ``title`` names the tool and the call, ``ref`` is the reference as JSON; each passage is a heading and its lines;
    ``stored``: how much of the output is stored.
    """
    lines = [f"[Output stored {stored}: {title}]", f"Size: {size}", f"ContextRef: {ref}", advice]
    for heading, rows in passages.items():
        if rows:
            lines += [f"{heading}:", *rows]
    return "\n".join(lines)


def render_size(*, chars: int, size_bytes: int, lines: int, is_json: bool | None) -> str:
    """How large an output is, and whether it is JSON; None: it was not looked at."""
    json = {True: "yes", False: "no", None: "not checked"}[is_json]
    return f"{chars:,} characters, {size_bytes:,} bytes, {plural(lines, 'line')}; JSON: {json}"


def render_advice(ref_id: str, path: str, tools: Collection[str], *, reader: str = READ_TOOL) -> str:
    """How to read on, with those of the reading tools that are there: ``tools`` are names, ``reader`` opens files."""
    known = _by_own_name(tools)
    ways = [
        f"{known[own_name(name)]}({arguments})"
        for name, arguments in (
            ("context_tail", f'ref="{ref_id}", lines=200'),
            ("context_grep", f'ref="{ref_id}", pattern="Error|Exception"'),
            ("context_read", f'ref="{ref_id}", offset=1'),
            (reader, f'file_path="{path}"'),
        )
        if own_name(name) in known
    ]
    if not ways:
        return f"The whole output is in {path}"
    return f"If you need more of it: first {', or '.join(ways[:2])}"


def render_repeat(call_id: str, lines: int, way: str) -> str:
    """What is sent of a result that equals an earlier one, that of ``call_id``; ``way``: see ``way_to_read``."""
    return f"[The same as {call_id}, {plural(lines, 'line')}, unchanged. To read it: {way}]"


def render_changed(call_id: str, lines: int, way: str, diff: str) -> str:
    """What is sent of a result that is a newer version of that of ``call_id``; ``diff``: from that one to this one."""
    what = f"a unified diff from that result to this one, {plural(lines, 'line')}"
    title = f"[Changed since {call_id}: {what}. To read it whole: {way}]"
    return f"{title}\n{diff}"


def way_to_read(ref_id: str, path: str, tools: Collection[str], *, reader: str = READ_TOOL) -> str:
    """The call that shows what is stored from its first line on, with one of ``tools``; "": none of them does."""
    known = _by_own_name(tools)
    opens = own_name(reader)
    if opens in known and opens not in READING_TOOLS:
        return f'{known[opens]}(file_path="{path}")'
    if "context_read" in known:
        return f'{known["context_read"]}(ref="{ref_id}", offset=1)'
    return ""


_SMALL_ARGUMENT_CHARS = 200
"""Arguments up to this size stay as they are."""


def as_json(value: Any) -> str:
    """``value`` as JSON text, in which every character but the necessary stands as it is."""
    return json_codec.dumps_text(value)


def large_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are worth a file."""
    return {k: v for k, v in arguments.items() if len(v if isinstance(v, str) else as_json(v)) > _SMALL_ARGUMENT_CHARS}


def without_large_arguments(arguments: Mapping[str, Any], placeholder: str) -> dict[str, Any]:
    """The arguments with a placeholder in the place of the first large one, and a pointer to it in the others'."""
    if not (large := large_arguments(arguments)):
        return dict(arguments)
    first, *others = large
    shown = {first: placeholder, **dict.fromkeys(others, f"{HEADER} with {first}")}
    return {key: shown.get(key, value) for key, value in arguments.items()}
