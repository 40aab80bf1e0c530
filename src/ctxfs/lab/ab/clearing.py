"""An arm that removes old results for good, as providers' context editing does: what it costs can be measured. Pure."""

from collections.abc import Mapping
from typing import Any

from ctxfs.context.history.views import VIEWS, Api
from ctxfs.messages.tokens import CharsCounter
from ctxfs.text.jsontext import codec as json_codec

CLEARED = "[Old tool result content cleared]"
"""What the model sees instead; there is no way back."""

_COUNT = CharsCounter()


class Clearing:
    """Removes all results but the last ``keeps`` of a session each time its prompt passes ``above_tokens``.

    What was removed stays removed, so that the prompt cache breaks only when something more leaves.
    """

    def __init__(self, above_tokens: int, keeps: int) -> None:
        self._above = above_tokens
        self._keeps = keeps
        self._cleared = set[str]()

    @property
    def cleared(self) -> int:
        """How many results were removed so far."""
        return len(self._cleared)

    def edited(self, api: Api, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body to send: itself, if nothing is removed. Raises ``TranscriptError`` if it is not a request."""
        view = VIEWS[api]
        results = [part for part in view.parts_of(body) if part.kind == "result"]
        edited = view.applied(body, self._edits(results))
        if _COUNT.count(json_codec.dumps_text(dict(edited))) <= self._above:
            return edited
        old = results[: -self._keeps] if self._keeps else results
        self._cleared |= {part.id for part in old}
        return view.applied(body, self._edits(results))

    def _edits(self, results: Any) -> dict[Any, Any]:
        return {part.place: CLEARED for part in results if part.id in self._cleared}
