"""The wire formats that a history can be shown in, by name, and what was last read of each branch's requests. Pure."""

import threading
from collections.abc import Mapping
from typing import Literal

from ctxfs.context.history.parts import Part
from ctxfs.context.history.wire import Body, WireMemory, WireView
from ctxfs.context.history.wire_chat import CHAT
from ctxfs.context.history.wire_gemini import GEMINI
from ctxfs.context.history.wire_messages import MESSAGES
from ctxfs.context.history.wire_responses import RESPONSES

Api = Literal["messages", "chat", "responses", "gemini"]
"""Anthropic's Messages API, OpenAI's Chat Completions or Responses API, or Gemini's ``generateContent``."""

VIEWS: Mapping[Api, WireView] = {"messages": MESSAGES, "chat": CHAT, "responses": RESPONSES, "gemini": GEMINI}


_MOST = 8


class WireMemories:
    """The last request of each of a few branches. Of one branch, one request is read at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_branch: dict[tuple[Api, str], WireMemory] = {}

    def parts_of(self, api: Api, body: Body, branch: str) -> tuple[list[Part], bool]:
        """The parts of a request, and whether nobody else can change their contents.

        Raises ``TranscriptError`` if it is not a request of ``api``.
        """
        with self._lock:
            memory = self._by_branch.pop((api, branch), None) or WireMemory()
            while len(self._by_branch) >= _MOST:
                del self._by_branch[next(iter(self._by_branch))]
            self._by_branch[api, branch] = memory
            return VIEWS[api].parts_of(body, memory), memory.is_own
