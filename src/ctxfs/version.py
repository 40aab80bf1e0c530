"""The version of ctxfs, in one place: the package, the build and the command line read it here."""

__all__ = ["__version__"]

__version__ = "0.1.0"
