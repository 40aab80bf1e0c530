"""Records as JSON data, and back."""

import pytest

from ctxfs.messages.base import Usage
from ctxfs.session.record_json import from_json, is_accounting, to_json
from ctxfs.session.records import CallMade, Record, RequestSent, ToolsDefined


@pytest.mark.parametrize(
    "record",
    [
        ToolsDefined(sha256="0" * 64, tools=({"name": "Read"}, {"name": "Bash"})),
        RequestSent(sent_at=1.5, breakpoints=(1, 3)),
        CallMade(number=1, usage=Usage(input_tokens=3), model="m"),
    ],
)
def test_an_accounting_record_comes_back_as_it_was(record: Record) -> None:
    data = to_json(record)
    assert from_json(data) == record
    assert is_accounting(data)
    assert not is_accounting([data])
