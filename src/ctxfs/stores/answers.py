"""Requests to a server that may not answer: how long to wait for an answer, and for another writer."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from ctxfs.errors import OutcomeUnknown, StoreRefused, WriteFailed
from ctxfs.errors.checks import require_number
from ctxfs.storage.failures import TROUBLES, NoAnswer, NotSent

T = TypeVar("T")

logger = logging.getLogger("ctxfs.stores")

TTL_S: Final = 30.0
"""The lease of a silent writer: longer than a commit is repeated, so that a slow one is not taken over."""

GIVE_UP_S: Final = 20.0
"""For how long a request without an answer is repeated: room for two that are silent for ``SILENT_S``."""

SILENT_S: Final = 8.0
"""A server that is silent for this long has not answered. Below half of ``GIVE_UP_S``, so that a request without an
answer is made a second time, which finds out what became of the first."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long to wait for another writer, and for an answer.

    Args:
        ttl_s: for how many seconds after its last commit a writer that did not release the session keeps it; 0:
            it may be taken over at once.
        give_up_s: for how many seconds a request without an answer is repeated.
        clock: gives seconds since the epoch; used for leases only, which safety does not depend on.
        sleep: waits between two tries.

    Raises:
        ConfigError: a time that is negative, or not a number.
    """

    ttl_s: float = TTL_S
    give_up_s: float = GIVE_UP_S
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        require_number("ttl_s", self.ttl_s, at_least=0)
        require_number("give_up_s", self.give_up_s, at_least=0)


def repeated(request: Callable[[], T], name: str, terms: Terms) -> T:
    """Make a request that writes ``name`` until it is answered; it must be idempotent.

    Raises ``OutcomeUnknown`` if that takes too long, or if a later try is refused, since an earlier one may have
    succeeded; ``WriteFailed`` if the server was never reached, and ``StoreRefused`` if it refuses for good. Other
    exceptions of ``request`` are not caught.
    """
    pause = FIRST_PAUSE_S
    waited = 0.0
    unanswered = False
    while True:
        started = terms.clock()
        try:
            return request()
        except NoAnswer as error:
            unanswered = unanswered or not isinstance(error, NotSent)
            # The pause counts too, so that a clock that is set back cannot prevent the end.
            waited += max(0.0, terms.clock() - started) + pause
            if waited > terms.give_up_s:
                if unanswered:
                    raise OutcomeUnknown(name, str(error)) from error
                raise WriteFailed(name, str(error)) from error
            TROUBLES.met("retry")
            logger.info("%s is written again, since the store did not answer: %s", name, error)
        except (WriteFailed, StoreRefused) as error:
            if unanswered:
                raise OutcomeUnknown(name, str(error)) from error
            raise
        terms.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)
