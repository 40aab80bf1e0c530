"""The version of ctxfs, in one place: the package, the build and the command line read it here."""

__version__ = "0.1.0"

VERSION_LINE = f"ctxfs {__version__}\n"
"""What the command line prints for ``--version``."""
