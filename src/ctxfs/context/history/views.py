"""The wire formats that a history can be shown in, by name. Pure."""

from collections.abc import Mapping
from typing import Literal

from ctxfs.context.history.wire import WireView
from ctxfs.context.history.wire_chat import CHAT
from ctxfs.context.history.wire_gemini import GEMINI
from ctxfs.context.history.wire_messages import MESSAGES
from ctxfs.context.history.wire_responses import RESPONSES

Api = Literal["messages", "chat", "responses", "gemini"]
"""Anthropic's Messages API, OpenAI's Chat Completions or Responses API, or Gemini's ``generateContent``."""

VIEWS: Mapping[Api, WireView] = {"messages": MESSAGES, "chat": CHAT, "responses": RESPONSES, "gemini": GEMINI}
