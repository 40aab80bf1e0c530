"""The storage's own tests are on a disk; those of all others may be in memory."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Give a directory where the system puts temporary files."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as path:
        yield Path(path)
