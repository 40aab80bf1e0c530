"""What ctxfs ships for tests: scripted models, real servers on loopback, and strategies."""

from ctxfs.llm.messages import ToolCall
from ctxfs.testing.prompt_cache import PromptCache
from ctxfs.testing.scripted import Cut, ScriptedModel

__all__ = ["Cut", "PromptCache", "ScriptedModel", "ToolCall"]
