"""The text that stands for content that left the context. The only place where it is written.

Follows "Context FileSystem 上下文卸载功能": the three lines come first and stay exactly so.
"""

from ctxfs.context.items import ContentRange

__all__ = ["HEADER", "render", "render_direct", "render_listed", "render_range"]

HEADER = "[Content offloaded]"


def render(path: str, digest: str = "") -> str:
    """The placeholder for content stored at ``path`` (absolute), then its digest, if there is one."""
    placeholder = f"{HEADER}\nPath: {path}\nUse Read tool to view details."
    return f"{placeholder}\n{digest}" if digest else placeholder


def render_range(source: ContentRange) -> str:
    """The placeholder for a read-back: it names the first file and the lines, since no copy is stored."""
    first, last = source.first_line, source.last_line
    return render(source.path, f"Lines {first}-{last} of it were here: offset={first}, limit={last - first + 1}")


def render_direct(path: str) -> str:
    """The placeholder of "Tool Direct Offload", F-001, for content stored at ``path`` (absolute)."""
    return f"[Tool result offloaded to file: {path}]"


def render_listed(name: str) -> str:
    """The placeholder of "Agent 上下文卸载模块", F-003; ``name`` is relative to the output directory."""
    return f"[Content offloaded to: ./{name}]"
