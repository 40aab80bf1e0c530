"""A process that rewrites a growing history and writes down what it gives out; to be killed, and begun again."""

import json
import sys

from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Part
from ctxfs.session.fingerprint import sha256_of


def conversation(exchanges: int) -> list[Part]:
    parts = [Part("user", "go", 0)]
    for n in range(exchanges):
        parts.append(Part("reply", f"reading {n}", f"r{n}"))
        parts.append(Part("call", {"path": f"/f{n}"}, f"c{n}", f"c{n}", "Read"))
        parts.append(Part("result", f"line of file {n}\n" * (50 + n % 7 * 100), f"o{n}", f"c{n}", "Read"))
    return parts


def main(root: str, first: int) -> None:
    """From ``first`` exchanges on, write a line for each rewrite: by result, the hash of what stands for it."""
    history = History("killed", root_path=root, keep_recent={"Read": 1}, pricing=None, window=None)
    for exchanges in range(first, first + 10_000):
        edits = history.rewrite(conversation(exchanges))
        given = {str(place): sha256_of(content) for place, content in edits.items()}
        print(json.dumps({"exchanges": exchanges, "given": given}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
