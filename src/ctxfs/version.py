"""The version of ctxfs and the address of its documentation, in one place: the package and the build read them here."""

__version__ = "0.1.0"

DOCS = "https://ctxfs.readthedocs.io"
"""Where the documentation is: an installed package has none of it."""

VERSION_LINE = f"ctxfs {__version__}\n"
"""What the command line prints for ``--version``."""
