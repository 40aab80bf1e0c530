"""A unified diff applied, as ``patch`` would."""

import re

__all__ = ["patched"]


def patched(old: str, hunks: str) -> str:
    """``old`` with the hunks applied; fails where they say something of it that is not so."""
    before = old.split("\n")
    if before[-1] == "":
        before.pop()
    else:
        before[-1] += "\0"
    after: list[str] = []
    at = 0
    for hunk in re.split(r"(?m)^(?=@@ )", hunks)[1:]:
        head, *lines = hunk.removesuffix("\n").replace("\n\\ No newline at end of file", "\0").split("\n")
        found = re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", head)
        assert found is not None
        old_count = 1 if found[2] is None else int(found[2])
        new_count = 1 if found[4] is None else int(found[4])
        assert old_count == sum(line[0] in " -" for line in lines)
        assert new_count == sum(line[0] in " +" for line in lines)
        start = int(found[1]) - (old_count > 0)
        after += before[at:start]
        assert len(after) == int(found[3]) - (new_count > 0)
        assert before[start : start + old_count] == [line[1:] for line in lines if line[0] in " -"]
        after += [line[1:] for line in lines if line[0] in " +"]
        at = start + old_count
    after += before[at:]
    text = "".join(f"{line}\n" for line in after)
    return text.removesuffix("\0\n") if text.endswith("\0\n") else text
