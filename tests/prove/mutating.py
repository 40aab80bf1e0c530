"""Inputs for the fuzz targets: seeds with a few changes, which keep most of their form."""

import random
from collections.abc import Iterator

from prove.fuzz_targets import Target

__all__ = ["mutants"]

_BYTES = (b"\0", b"\n", b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"0", b"-", b"\xff", b"\xed\xa0\x80")


def mutants(target: Target, seed: int, count: int) -> Iterator[bytes]:
    """Yield ``count`` inputs; the same seed gives the same ones."""
    rng = random.Random(seed)
    yield from target.seeds
    for _ in range(count - len(target.seeds)):
        data = rng.choice(target.seeds)
        for _ in range(rng.randrange(1, 5)):
            data = _changed(rng, data, target)
        yield data


def _changed(rng: random.Random, data: bytes, target: Target) -> bytes:
    if rng.random() < 0.15:
        return _swapped_value(rng, data, target)
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.randrange(1, 80))
    other = rng.choice(target.seeds)
    number = str(rng.choice((0, -1, 1, 255, 1 << 31, 1 << 63, 1 << 64))).encode()
    return rng.choice(
        (
            data[:at] + rng.randbytes(1) + data[at + 1 :],
            data[:at] + data[end:],
            data[:at] + rng.choice((*_BYTES, *target.words)) + data[at:],
            data[:end] + data[at:end] + data[end:],
            data[:at] + other[rng.randrange(len(other) + 1) :],
            data[:at] + number + data[at + 1 :],
        )
    )


def _swapped_value(rng: random.Random, data: bytes, target: Target) -> bytes:
    """Replace what stands between a colon and the next comma: a JSON value, where the input is JSON."""
    colons = [n for n, byte in enumerate(data) if byte == ord(":")]
    if not colons:
        return data
    start = rng.choice(colons) + 1
    ends = [end for end in (data.find(mark, start) for mark in (b",", b"}", b"]")) if end >= 0]
    value = rng.choice((b"null", b"[]", b"{}", b'""', b"-1", b"1.5", b"true", b'["a"]', b'{"a":1}', *target.words))
    return data[:start] + value + data[min(ends, default=len(data)) :]
