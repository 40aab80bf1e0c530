"""What was last read of the requests of each branch, so that only the new part of the next one has to be read."""

import threading

from ctxfs.context.history.parts import Part
from ctxfs.context.history.views import VIEWS, Api
from ctxfs.context.history.wire import Body, WireMemory

_MOST = 8


class WireMemories:
    """The last request of each of a few branches. Of one branch, one request is read at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_branch: dict[tuple[Api, str], WireMemory] = {}

    def parts_of(self, api: Api, body: Body, branch: str) -> tuple[list[Part], bool]:
        """The parts of a request, and whether nobody else can change their contents.

        Raises ``TranscriptError`` if it is not a request of ``api``.
        """
        with self._lock:
            memory = self._by_branch.pop((api, branch), None) or WireMemory()
            while len(self._by_branch) >= _MOST:
                del self._by_branch[next(iter(self._by_branch))]
            self._by_branch[api, branch] = memory
            return VIEWS[api].parts_of(body, memory), memory.is_own
