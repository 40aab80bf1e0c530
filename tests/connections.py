"""Databases that are opened during a test, to see that each is closed: from Python 3.13 on, one that is not warns."""

import sqlite3
from typing import Any

import pytest

__all__ = ["noted_connections"]


def noted_connections(monkeypatch: pytest.MonkeyPatch) -> dict[int, bool]:
    """By the order in which databases are opened from now on: whether they were closed."""
    closed: dict[int, bool] = {}
    connect = sqlite3.connect

    class Noted(sqlite3.Connection):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            self.number = len(closed)
            closed[self.number] = False

        def close(self) -> None:
            super().close()
            closed[self.number] = True

    monkeypatch.setattr(sqlite3, "connect", lambda *given, **settings: connect(*given, **settings, factory=Noted))
    return closed
