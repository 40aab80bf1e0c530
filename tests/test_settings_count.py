"""How many settings a user may meet: the parameters of the public classes that settings are given to.

``PYTHONPATH=tests python tests/test_settings_count.py`` prints them.
"""

import inspect
from dataclasses import fields, is_dataclass
from importlib import import_module

SETTINGS = {
    "ctxfs.agent": "AgentConfig ChatAnthropic ChatOpenAI Telemetry",
    "ctxfs.context": "Context Histories History",
    "ctxfs.eviction": """
        EvictionParameters EvictionPricing OffloadPolicy SelectiveCompaction Window
    """,
    "ctxfs.session": "ForgetPolicy",
    "ctxfs.tools": "Bash Materialize ToolResultOffload",
}
"""The public classes whose values a user chooses; what is only given to a program's own objects is not a setting."""
MOST = 110
"""As many as there are: one more is a decision, and this line changes with it."""


def settings_of(kind: type) -> list[str]:
    """The names of a class's settings."""
    if is_dataclass(kind):
        return [field.name for field in fields(kind) if field.init and not field.name.startswith("_")]
    return [name for name in inspect.signature(kind).parameters if not name.startswith("_")]


def counted() -> dict[str, list[str]]:
    """The settings of each class."""
    found = {}
    for module, names in SETTINGS.items():
        for name in names.split():
            found[f"{module}.{name}"] = settings_of(getattr(import_module(module), name))
    return found


def test_there_are_no_more_settings_than_were_decided() -> None:
    assert sum(len(names) for names in counted().values()) == MOST


if __name__ == "__main__":
    for place, names in counted().items():
        print(f"{len(names):3} {place}: {', '.join(names)}")
    print(f"{sum(len(names) for names in counted().values()):3} in all")
