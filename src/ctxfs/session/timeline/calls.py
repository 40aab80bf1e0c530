"""The model calls on a context, as the journal has them. Pure."""

from dataclasses import dataclass

from ctxfs.messages.base import Usage
from ctxfs.session.records import CallMade, RequestSent


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of the model on the context; calls for summaries are not among them.

    Attributes:
        number: its number, from 1.
        end: how many records the journal had when the request was sent.
        reply_id: the item of the reply; None where a framework owns the history.
        sent: the record of the request; None: the session was written by a version that did not record it.
        bill: the record of what was billed; None: nothing was recorded.
        tokens: the request, by our own count.
        evicted: the tokens that evictions kept out of the request; without any, it would have had ``tokens`` + these.
        unsent: of these, what would have been in a request for the first time.
        rewritten: the tokens that the last request had too, behind the first change, so that the cache writes them
            again.
        kept: the tokens before that change, which the cache may still hold; None: nothing is written again.

    """

    number: int
    end: int
    reply_id: str | None = None
    sent: RequestSent | None = None
    bill: CallMade | None = None
    tokens: int = 0
    evicted: int = 0
    unsent: int = 0
    rewritten: int = 0
    kept: int | None = None

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
