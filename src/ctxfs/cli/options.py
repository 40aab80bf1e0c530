"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from ctxfs.cli.amounts import moment
from ctxfs.cli.completion import known_items, known_sessions
from ctxfs.cli.directory import ROOT_VARIABLE

STORE_VARIABLE = "CTXFS_STORE"

Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        envvar=ROOT_VARIABLE,
        help="The directory that holds sessions (default: ~/.agent/context).",
        show_default=False,
    ),
]
PreviewAbove = Annotated[
    int,
    typer.Option(
        "--preview-above-tokens",
        min=0,
        metavar="N",
        envvar="CTXFS_PREVIEW_ABOVE_TOKENS",
        help="Send a tool's result of up to N tokens whole, and a preview of a larger one; 0: always whole.",
    ),
]
Query = Annotated[
    bool, typer.Option("--query", help="Offer context_query, too: SQL over contents that are JSON, JSON lines or CSV.")
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=STORE_VARIABLE,
        help="Where sessions are, instead of a directory: s3://bucket/prefix, gs://..., az://... or postgresql://...",
        show_default=False,
    ),
]
SessionArgument = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        autocompletion=known_sessions,
        help="A session's id, the beginning of one, or 'last' for the newest.",
    ),
]
ItemArgument = Annotated[
    str, typer.Argument(metavar="ITEM", autocompletion=known_items, help="An item's id, or the beginning of one.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would be done.")]
Unasked = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")]
Since = Annotated[
    float | None,
    typer.Option(
        "--since",
        metavar="TIME",
        parser=moment,
        help="Only sessions changed since: a date, or an age such as 90m, 36h, 7d, 2w.",
    ),
]
