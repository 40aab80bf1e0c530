"""A bucket that is a directory: only its owner reaches what is in it, whatever the umask."""

import os
import stat
from pathlib import Path

from ctxfs.stores.objects.bucket import open_bucket


def test_the_directory_is_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_bucket(f"file://{tmp_path}/bucket").create("a/b", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "bucket").stat().st_mode) == 0o700
    assert (tmp_path / "bucket" / "a" / "b").read_bytes() == b"content"
