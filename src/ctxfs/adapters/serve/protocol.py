"""The messages of the Model Context Protocol that need no tool, and the greeting before anything else is imported.

A server that only offers tools needs a handful of the protocol's messages, one JSON object a line. They are written out
here because the package ``mcp`` takes over a second of CPU time to import, and a host does not wait for a server that
starts late. Follows the specification of 2025-11-25; a newer client falls back to a version that it shares with us.
"""

import sys
from collections.abc import Mapping
from functools import cache
from io import FileIO
from typing import Any, BinaryIO

from ctxfs.text.jsontext import codec as json_codec
from ctxfs.version import __version__

_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions of the protocol in which these messages are the same, the newest first."""

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
"""Codes of JSON-RPC."""

_INSTRUCTIONS = (
    "Tool results that were large are stored in full. Where a placeholder or a summary stands for one, read what you "
    "need of it with these tools: search it first, then read around what was found."
)


class Refused(Exception):
    """A request that is answered with an error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def greet(incoming: BinaryIO | None = None, outgoing: BinaryIO | None = None) -> bytes:
    """Answer the first line if it is the client's greeting, and return b""; return a line that is anything else.

    It blocks, so it is for a program that has not begun anything else: what the tools need takes longer to import than
    the rest of a start. None: the process's standard streams.
    """
    lines: BinaryIO | FileIO | None = incoming
    if lines is None:
        lines = FileIO(sys.stdin.fileno(), closefd=False)  # a buffer would hold the next lines, too
    answers = sys.stdout.buffer if outgoing is None else outgoing
    line = lines.readline()
    try:
        message = message_in(line)
        if message.get("method") != "initialize" or "id" not in message:
            return line
        answer = line_of(id_of(message), result=greeting(mapping_in(message, "params").get("protocolVersion")))
    except Refused:
        return line  # the server refuses it
    answers.write(answer)
    answers.flush()
    return b""


@cache
def greet_once() -> bytes:
    """``greet`` on the standard streams, when this is first called; then what that returned."""
    return greet()


def message_in(line: bytes) -> Mapping[str, Any]:
    """The message in a line. Raises ``Refused`` for anything else."""
    try:
        message = json_codec.loads(line)
    except ValueError as error:
        raise Refused(_PARSE_ERROR, f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise Refused(_INVALID_REQUEST, "a message is a JSON object")
    return message


def id_of(message: Mapping[str, Any]) -> str | int:
    """The id of a request. Raises ``Refused`` unless it is one that the protocol allows."""
    given = message["id"]
    if isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    raise Refused(_INVALID_REQUEST, "the id of a request is a text or a whole number")


def mapping_in(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object in a field, which may be missing. Raises ``Refused`` for anything else."""
    value = holder.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused(INVALID_PARAMS, f"{name} must be an object")
    return value


def line_of(request_id: Any, **outcome: Any) -> bytes:
    """The line that answers a request; ``outcome``: its ``result``, or its ``error``."""
    return json_codec.dumps({"jsonrpc": "2.0", "id": request_id, **outcome}) + b"\n"


def greeting(asked: Any) -> Mapping[str, Any]:
    """The result of ``initialize``; ``asked``: the version of the protocol that the client asks for."""
    return {
        "protocolVersion": asked if asked in _VERSIONS else _VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "ctxfs", "version": __version__},
        "instructions": _INSTRUCTIONS,
    }
