"""How long tests wait for what should come at once."""

__all__ = ["HANGS_S"]

HANGS_S = 600.0
"""What has not happened after so many seconds never will: a bound on hangs, far from what a busy machine needs."""
