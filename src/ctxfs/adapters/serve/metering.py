"""Who else sees the requests for replies of a proxy: for budgets, measurements and comparisons."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ctxfs.context.history.views import Api

FREE = ("/count_tokens", "/input_tokens", ":countTokens")
"""How the paths of requests end that cost nothing, although they are posted."""


class MeteredCall(Protocol):
    """One request that is sent."""

    @property
    def content(self) -> bytes:
        """The bytes to send."""

    def ended(self, status: int, bill: tuple[dict[str, Any], str | None] | None, *, is_whole: bool) -> None:
        """Take the end of the call; a second end says nothing.

        Args:
            status: of the answer; 0: there was none.
            bill: the usage and the model that the reply names; None: it names none.
            is_whole: the reply came to its end.

        """


class Meter(Protocol):
    """Sees every request for a reply as it is about to be sent; any thread may call it."""

    def began(self, api: Api, body: Mapping[str, Any] | None, content: bytes, *, place: str, model: str) -> MeteredCall:
        """Take a request that is about to be sent.

        Args:
            api: the API that it is for.
            body: what ``content`` is, decoded; None: it could not be read.
            content: its bytes, perhaps compressed.
            place: the conversation and its branch.
            model: the model that the path of the request names; "": the body names it.

        Raises:
            BudgetSpent: it must not be sent.

        """


class Shadow(Protocol):
    """Sees every request for a reply that was rewritten, as it is about to be sent; any thread may call it.

    See ``ctxfs.lab.shadow.Sampler``: it neither raises nor waits.
    """

    def take(
        self,
        api: Api,
        given: Mapping[str, Any],
        rewritten: Mapping[str, Any],
        note: Callable[[Any], None],
        *,
        send: Callable[[dict[str, Any]], Any],
        model: str,
    ) -> None:
        """Take a request as it came and as it is sent; ``send`` sends another body to the same place."""
