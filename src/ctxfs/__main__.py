"""``python -m ctxfs`` is the ``ctxfs`` command."""

from ctxfs.cli import main

main()
