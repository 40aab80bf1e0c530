"""The model calls on a context, as the journal has them. Pure."""

from dataclasses import dataclass

from ctxfs.llm.base import Usage
from ctxfs.session.records import CallMade, ItemAdded, Record, RequestSent

__all__ = ["Call", "CallCounter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of the model on the context; calls for summaries are not among them.

    Attributes:
        number: its number, from 1.
        end: how many records the journal had when the request was sent.
        reply_id: the item of the reply; None where a framework owns the history.
        sent: the record of the request; None: the session was written by a version that did not record it.
        bill: the record of what was billed; None: nothing was recorded.

    """

    number: int
    end: int
    reply_id: str | None = None
    sent: RequestSent | None = None
    bill: CallMade | None = None

    @property
    def sent_at(self) -> float | None:
        """When the request was sent, in seconds since the epoch; None: not recorded."""
        return None if self.sent is None else self.sent.sent_at

    @property
    def replied_at(self) -> float | None:
        """When the reply came, in seconds since the epoch; None: not recorded."""
        return None if self.bill is None else self.bill.made_at or None

    @property
    def model(self) -> str:
        """The model that replied; "" if it is not recorded."""
        return "" if self.bill is None else self.bill.model

    @property
    def usage(self) -> Usage | None:
        """What the provider billed; None: not recorded."""
        return None if self.bill is None else self.bill.usage


class CallCounter:
    """Counts the calls of the model on a context as a journal's records come; those for summaries do not count.

    Attributes:
        calls: how many there were so far.

    """

    # A call is known by its reply, if that is an item. Where a framework owns the history there are no items, and a
    # call is known by its bill.

    def __init__(self) -> None:
        self.calls = 0
        self._has_items = False

    def take(self, record: Record) -> bool:
        """Take in the next record; return whether it marks the next call."""
        match record:
            case ItemAdded():
                self._has_items = True
                counted = record.is_reply
            case CallMade(summary=False):
                counted = not self._has_items
            case _:
                counted = False
        self.calls += counted
        return counted
