"""Whatever in the public names takes settings answers a wrong one with the setting that was meant."""

import ast
import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from test_layers import MODULES
from test_public_names import ADAPTERS, public_objects

pytestmark = pytest.mark.not_measured

VALUES = frozenset(
    """
    Part Edits HostCache ContextItem ContextRef ToolCall ToolMessage ToolResult ToolCallResult Usage
    ModelRequest NewFile SessionFound
    Evicted Offload Plan SummaryFailed Calibration Offloaded
    Call CallMade Changes CheckedSession DamagedContent DiskUsage Effect ForgetPlan Forgotten ItemChange PastRequest
    Pruned Recovery SessionState ContentReader Forked
    Cost ExplainedItem Report SessionReport PolicyRun
    OffloadStats RunningCall Stored FileStat Artifact ArtifactInfo
""".split()  # noqa: SIM905 - as the tables of public names are written
)
"""What a conversation is made of, call by call, and what ctxfs returns: values, for which Python's own error is enough.

A new public name with optional parameters that is not here needs ``names_settings``.
"""


def optional_settings(value: Any) -> list[str]:
    """The names of the keywords that may be given to a public class or function, or left out."""
    if not callable(value):
        return []
    if inspect.isclass(value):
        is_made_by_users = not issubclass(value, BaseException | Enum) and not inspect.isabstract(value)
        if not is_made_by_users or getattr(value, "_is_protocol", False):
            return []
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:  # a typed dict, for one
        return []
    return [one.name for one in parameters if one.default is not one.empty and one.kind is not one.POSITIONAL_ONLY]


def with_settings() -> Iterator[tuple[str, Any]]:
    met = set()
    for full_name, value in public_objects().items():
        name = full_name.rpartition(".")[2]
        if name not in met and optional_settings(value):
            met.add(name)
            yield name, value


WITH_SETTINGS = dict(with_settings())


@pytest.mark.parametrize("name", sorted(WITH_SETTINGS.keys() - VALUES))
def test_each_setting_misspelled_is_answered_with_the_one_that_was_meant(name: str) -> None:
    make = WITH_SETTINGS[name]
    for setting in optional_settings(make):
        with pytest.raises(TypeError, match=rf"^{name} has no setting '{setting}x': did you mean '{setting}'\?"):
            make(**{f"{setting}x": None})


def test_what_is_listed_as_a_value_is_there_and_is_none_of_the_others() -> None:
    assert WITH_SETTINGS.keys() >= VALUES
    assert not [name for name in VALUES if hasattr(WITH_SETTINGS[name].__init__, "__wrapped__")]


def test_adapters_name_their_settings_too() -> None:
    """Read and not imported, since their frameworks are not installed here."""
    missing = []
    for module, names in ADAPTERS.items():
        for node in ast.parse(MODULES[module.removeprefix("ctxfs.")].read_text()).body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name not in names.split():
                continue
            inherits = isinstance(node, ast.ClassDef) and "__init__" not in [
                getattr(one, "name", "") for one in node.body
            ]
            if not inherits and not any("names_settings" in ast.unparse(one) for one in node.decorator_list):
                missing.append(f"{module}.{node.name}")
    assert missing == []
