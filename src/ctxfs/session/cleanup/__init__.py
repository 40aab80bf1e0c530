"""Cleaning up: forget sessions, prune and erase contents, check them, see what takes the space."""
