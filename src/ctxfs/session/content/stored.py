"""What is known of a content that is durable, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import part_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An item's content is durable in the file ``name``.

    ``encoding`` says how the content became bytes; ``size_bytes`` counts those bytes, ``chars`` and ``lines`` the
    readable text. ``digest`` is the SHA-256 over the SHA-256 of each of its ``blocks``. The content's encoded form
    stands at ``content_offset`` of the file, ``content_length`` bytes long. ``offloaded_at`` is in whole seconds since
    the epoch. ``compression``: "zstd" if the file is compressed (see ``content.compression``), "" if it is not.
    """

    item_id: str
    item_type: ItemType
    name: str
    encoding: str
    size_bytes: int
    chars: int
    lines: int
    digest: str
    blocks: int
    content_offset: int
    content_length: int
    raw: bool
    offloaded_at: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    compression: str = ""

    @property
    def tool_name(self) -> str | None:
        """The tool whose result this is; None for anything else."""
        return self.metadata.get("tool_name")

    @property
    def missing(self) -> str:
        """What a tool's output had beyond the content, in words; "" if this is all of it."""
        if full_bytes := self.metadata.get("full_bytes"):
            return f"only {part_of(self.size_bytes, full_bytes)} were stored"
        if self.metadata.get("partial") is True:
            return "its command had not ended"
        return ""
