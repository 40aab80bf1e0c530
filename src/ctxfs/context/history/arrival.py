"""What to do with a tool's new result where it is made, before it is in any history: decided as a value. Pure."""

from collections.abc import Callable

from ctxfs.context.history.slots import BY_ANOTHER_LIBRARY
from ctxfs.context.history.view import Decision
from ctxfs.eviction.offload_plan import EagerPolicy
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages.incoming import Incoming, new_item
from ctxfs.messages.messages import Content, ToolMessage
from ctxfs.messages.names import NameAllocator
from ctxfs.messages.tokens import TokenCounter, count_content
from ctxfs.session.fingerprint import Key, decided_at_source


def arriving(
    key: Key,
    content: Content,
    *,
    tool: str,
    stub: Content | None,
    full_bytes: int,
    names: NameAllocator,
    eager: EagerPolicy | None,
    policy: OffloadPolicy,
    path_of: Callable[[str], str],
    counter: TokenCounter,
) -> Decision | None:
    """The decision about a new result; None: it stays as it is.

    ``stub``: what another library has already put in its place, so that it must be stored in any case; None: ``eager``
    decides, if ``policy`` allows the result to leave. ``full_bytes``: see ``ContextItem``.
    """
    incoming = Incoming(message=ToolMessage(key.call_id, tool, content), full_bytes=full_bytes)
    item = new_item(incoming, names=names, counter=counter)
    if stub is not None:
        replacement = stub
        tokens = count_content(counter, stub)
        reason = BY_ANOTHER_LIBRARY
    else:
        if eager is None or not policy.allows(item.item_type, item.content_tokens):
            return None
        leaving = eager.decide(item, path_of=path_of, counter=counter)
        if leaving is None:
            return None
        item = leaving.item
        replacement = leaving.offload.placeholder
        tokens = leaving.offload.tokens_after
        reason = leaving.offload.reason
    decided = decided_at_source(key, item, replacement, tokens, reason=reason, tool=tool)
    return Decision(contents=(item,), decided=(decided,))
