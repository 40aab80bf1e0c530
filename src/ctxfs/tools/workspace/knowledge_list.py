"""The text that represents large artifacts in the context: ``<knowledge_list>``. It is written only here.

Follows "Context Offload：Tool Result 落盘与访问". Everything that a tool or a model wrote is escaped, so that no
content can close the list or add an entry.
"""

import html
import re
from collections.abc import Iterable

from ctxfs.tools.workspace.artifacts import ArtifactInfo

GET_BY_ID = "get_knowledge_by_id"
GET_BY_LINES = "get_knowledge_by_lines"
GREP = "grep_knowledge"
QUERY = "query_artifacts"
INFO = "get_tool_result_offload_info"
_SHOWN_NAME_CHARS = 64
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CONTROL_IN_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def render(entries: Iterable[tuple[ArtifactInfo, str]]) -> str:
    """The list of artifacts, each with its summary ("" for none) and the calls that read it."""
    return "\n".join(["<knowledge_list>", *(_entry(info, summary) for info, summary in entries), "</knowledge_list>"])


def _entry(info: ArtifactInfo, summary: str) -> str:
    tool = f' tool="{_attribute(_cut(info.tool_name))}"' if info.tool_name else ""
    size = f'type="{info.artifact_type}" lines="{info.lines}" chars="{info.chars}"'
    ref = f'"{_attribute(info.artifact_id)}"'
    calls = f"{GET_BY_ID}({ref}), {GET_BY_LINES}({ref}, start_line, end_line), {GREP}({ref}, pattern)"
    lines = [f"<knowledge id={ref}{tool} {size}>"]
    if summary:
        lines.append(_CONTROL_IN_TEXT.sub("\ufffd", html.escape(summary)))
    return "\n".join([*lines, f"Read it with {calls}.", "</knowledge>"])


def _attribute(value: str) -> str:
    return html.escape(_CONTROL.sub("\ufffd", value))


def _cut(value: str) -> str:
    return value if len(value) <= _SHOWN_NAME_CHARS else f"{value[:_SHOWN_NAME_CHARS]}…"
