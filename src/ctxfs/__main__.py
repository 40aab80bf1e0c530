"""``python -m ctxfs`` is the ``ctxfs`` command."""

from ctxfs.cli import main

if __name__ == "__main__":
    main()
