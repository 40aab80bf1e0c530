"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "ItemArgument", "Root", "SessionArgument"]

Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        envvar="CTXFS_ROOT",
        help="The directory that holds sessions (default: ~/.agent/context).",
        show_default=False,
    ),
]
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="A session's id, the beginning of one, or 'last' for the newest.")
]
ItemArgument = Annotated[str, typer.Argument(metavar="ITEM", help="An item's id, or the beginning of one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")]
