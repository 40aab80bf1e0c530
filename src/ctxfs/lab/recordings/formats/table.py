"""The formats of recordings, in one table. The content decides which one a file is in, never its name."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from ctxfs.errors import InvalidReply, ReplayFormatError
from ctxfs.lab.recordings.formats import (
    anthropic,
    atif,
    claude_code,
    codex,
    copilot_cli,
    gemini_cli,
    inspect_log,
    mini_swe,
    openai_chat,
    opencode,
    openhands,
    pi,
    responses,
)
from ctxfs.lab.recordings.formats.builder import Document, document
from ctxfs.lab.recordings.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of JSON or JSON lines: how it is recognised, and read. ``agent``: who writes it; empty: many do."""

    name: str
    agent: str = ""
    recognises: Callable[[Document], bool]
    read: Callable[[Document], Iterable[Recording]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryFormat:
    """A format whose files begin with ``magic``; ``agent`` writes it."""

    name: str
    agent: str
    magic: bytes
    read: Callable[[Path], Iterable[Recording]]


FORMATS: Final = (
    Format(name="mini-swe-agent", agent="mini-swe-agent", recognises=mini_swe.is_mini_swe, read=mini_swe.read),
    Format(name="ATIF", agent="ATIF", recognises=atif.is_atif, read=atif.read),
    Format(name="Inspect logs", agent="Inspect", recognises=inspect_log.is_inspect, read=inspect_log.read),
    Format(name="opencode exports", agent="opencode", recognises=opencode.is_opencode, read=opencode.read),
    Format(name="OpenHands", agent="OpenHands", recognises=openhands.is_openhands, read=openhands.read),
    Format(name="pi", agent="pi", recognises=pi.is_pi, read=pi.read),
    Format(name="Gemini CLI", agent="Gemini CLI", recognises=gemini_cli.is_gemini_cli, read=gemini_cli.read),
    Format(name="Copilot CLI", agent="Copilot CLI", recognises=copilot_cli.is_copilot_cli, read=copilot_cli.read),
    Format(name="Claude Code", agent="Claude Code", recognises=claude_code.is_claude_code, read=claude_code.read),
    Format(name="Codex rollout", agent="Codex", recognises=codex.is_codex, read=codex.read),
    Format(name="OpenAI Responses", recognises=responses.is_responses, read=responses.read),
    Format(name="OpenAI chat messages", recognises=openai_chat.is_openai_chat, read=openai_chat.read),
    Format(name="Anthropic messages", recognises=anthropic.is_anthropic, read=anthropic.read),
)
"""Formats of text; the first that recognises a file reads it."""

BINARY_FORMATS: Final = (
    BinaryFormat(name="opencode's database", agent="opencode", magic=b"SQLite format 3\0", read=opencode.read_database),
    BinaryFormat(name="Inspect .eval", agent="Inspect", magic=b"PK\x03\x04", read=inspect_log.read_archive),
)

EXPECTED: Final = ", ".join([*(f.name for f in reversed(FORMATS)), *(f.name for f in BINARY_FORMATS)])
"""What errors say that could have been read."""


_KEYS_NAMED: Final = 4
"""The most keys that say what an unknown file looks like."""


def load(path: Path) -> tuple[Recording, ...]:
    """The recordings in a file: of most formats one; perhaps without a reply of a model.

    Raises:
        ReplayFormatError: the file is in none of the known formats, or damaged.
        MissingExtra: its format needs a package that is not installed.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(16)
        for binary in BINARY_FORMATS:
            if head.startswith(binary.magic):
                return _checked(partial(binary.read, path), binary.agent, str(path))
        data = head + file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReplayFormatError(f"{path}: not UTF-8 text ({error.reason}); expected {EXPECTED}") from error
    return parse(text, name=path.stem, where=str(path))


def parse(text: str, *, name: str, where: str = "the recording") -> tuple[Recording, ...]:
    """The recordings in a text; ``where`` names it in errors.

    Raises:
        ReplayFormatError: the text is in none of the known formats.
        MissingExtra: its format needs a package that is not installed.
    """
    found = document(text, name=name, where=where, expected=EXPECTED)
    for known in FORMATS:
        if known.recognises(found):
            return _checked(partial(known.read, found), known.agent, where)
    looks_like = ", ".join(list(found.head or found.rows[0])[:_KEYS_NAMED])
    raise ReplayFormatError(
        f"{where}: JSON, but in none of the known formats (it has {looks_like}); expected {EXPECTED}"
    )


def _checked(read: Callable[[], Iterable[Recording]], agent: str, where: str) -> tuple[Recording, ...]:
    """The recordings of ``read``; a message that its format does not allow is an error that names the file."""
    try:
        return tuple(replace(recording, agent=agent) for recording in read())
    except ReplayFormatError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, InvalidReply) as error:
        detail = f"{type(error).__name__}: {error}"
        raise ReplayFormatError(f"{where}: a message is not as expected ({detail}); expected {EXPECTED}") from error
