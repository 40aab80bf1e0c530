"""Items, as values."""

import pytest

from ctxfs.errors import InvalidRecord
from ctxfs.items import ContentRange


def test_a_range_that_no_journal_could_hold_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="first_line of a ContentRange is '1': use"):
        ContentRange(item_id="call_1", path="/s/call_1.json", first_line="1", last_line=2)  # type: ignore[arg-type]
