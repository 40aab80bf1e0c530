"""Inspect's evaluation logs: ``.eval`` (a zip of samples) and JSON. Each sample is a recording.

The messages are the sample's final ones, and the bills are in its events. Long texts are stored once, as attachments.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ctxfs.errors import ReplayFormatError
from ctxfs.lab.recordings.formats.builder import Builder, Document, arguments, media, plain, seconds, text
from ctxfs.lab.recordings.recording import Block, Kind, ModelCall, Recording, Role
from ctxfs.messages.base import Usage
from ctxfs.session.content.compression import zstd

_Json = Mapping[str, Any]
_ZIP_ZSTD = 93
_NAME_LENGTH = 26
"""Where in the header of a file in a zip the lengths of its name and of what comes after that stand."""

_ATTACHMENT = "attachment://"


def is_inspect(doc: Document) -> bool:
    """Whether it has the parts of a log."""
    return "eval" in doc.head and "samples" in doc.head


def read(doc: Document) -> Iterator[Recording]:
    """Each sample of a JSON log."""
    task = str(doc.head["eval"].get("task") or doc.name)
    for sample in doc.head["samples"] or ():
        yield _sample(sample, task)


def read_archive(path: Path) -> Iterator[Recording]:
    """Each sample of a ``.eval`` log.

    Raises:
        ReplayFormatError: it is another zip, damaged, or packed in a way that is not known.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(n for n in archive.namelist() if n.startswith("samples/") and n.endswith(".json"))
            if not names:
                raise ReplayFormatError(f"{path}: a zip without samples of an Inspect log in it")
            for name in names:
                yield _sample(json.loads(_member(path, archive, name)), path.stem)
    except NotImplementedError as error:
        raise ReplayFormatError(
            f"{path}: packed in a way that is not known ({error}): "
            "write it as JSON with `inspect log convert --to json`"
        ) from error
    except (zipfile.BadZipFile, zstd.ZstdError, ValueError) as error:
        raise error if isinstance(error, ReplayFormatError) else ReplayFormatError(f"{path}: {error}") from error


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a file in a zip. Inspect packs with zstd, which zipfile reads from Python 3.14 on."""
    info = archive.getinfo(name)
    if info.compress_type != _ZIP_ZSTD:
        return archive.read(info)
    with path.open("rb") as file:
        file.seek(info.header_offset + _NAME_LENGTH)
        lengths = file.read(4)
        file.seek(int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little"), io.SEEK_CUR)
        content = zstd.decompress(file.read(info.compress_size))
    if zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"bad CRC-32 for file {name!r}")
    return content


def _sample(sample: _Json, task: str) -> Recording:
    attachments = sample.get("attachments") or {}
    bills = {}
    for event in sample.get("events") or ():
        if event.get("event") == "model" and (call := _billed(event)) is not None:
            bills[call.id] = call
    builder = Builder()
    for row in sample["messages"]:
        call = bills.pop(str(row.get("id")), None)
        role = Role.USER if row["role"] == "tool" else Role(row["role"])
        builder.add(role, _blocks(row, attachments, builder), at=call.at if call else None, call=call)
    for call in bills.values():  # of models that judged, and of attempts that were given up
        builder.aside(call)
    return builder.finish(
        name=f"{task}/{sample['id']}" + (f"#{sample['epoch']}" if sample.get("epoch", 1) != 1 else "")
    )


def _blocks(row: _Json, attachments: _Json, builder: Builder) -> Iterable[Block]:
    content = row.get("content")
    if row["role"] == "tool":
        yield builder.result(str(row.get("tool_call_id") or ""), _resolved(content, attachments))
        return
    for part in [content] if isinstance(content, str) else content or ():
        if isinstance(part, Mapping) and part.get("type") == "reasoning":
            yield text(_attached(part.get("reasoning") or "", attachments), Kind.THINKING)
        else:
            resolved = _resolved([part], attachments)
            yield text(plain(resolved))
            yield media(resolved)
    for call in row.get("tool_calls") or ():
        yield builder.call(call["id"], call["function"], arguments(call["arguments"]))


def _resolved(content: Any, attachments: _Json) -> Any:
    """A text or a list of blocks, with what was attached in its place."""
    if not isinstance(content, list):
        return _attached(content, attachments)
    return [
        {**part, "text": _attached(part["text"], attachments)} if isinstance(part, Mapping) and "text" in part
        else _attached(part, attachments)
        for part in content
    ]  # fmt: skip


def _attached(said: Any, attachments: _Json) -> Any:
    if isinstance(said, str) and said.startswith(_ATTACHMENT):
        return attachments.get(said.removeprefix(_ATTACHMENT), said)
    return said


def _billed(event: _Json) -> ModelCall | None:
    output = event.get("output") or {}
    choices = output.get("choices") or ()
    if not choices or not output.get("usage"):
        return None
    return ModelCall(
        id=str(choices[0]["message"].get("id") or event.get("uuid") or event.get("timestamp") or ""),
        model=str(output.get("model") or event.get("model") or ""),
        at=seconds(event.get("completed") or event.get("timestamp")),
        usage=_usage(output["usage"]),
    )


def _usage(given: _Json) -> Usage:
    """Some providers' cached tokens are part of the input: the total says which."""
    read, written = int(given.get("input_tokens_cache_read") or 0), int(given.get("input_tokens_cache_write") or 0)
    paid, output = int(given["input_tokens"]), int(given.get("output_tokens") or 0)
    if given.get("total_tokens") == paid + output:
        paid = max(0, paid - read - written)
    return Usage(
        input_tokens=paid, cache_creation_input_tokens=written, cache_read_input_tokens=read, output_tokens=output
    )
