"""What the tests with a framework run under: no network, no real home directory, no account."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import loopback_only
from frameworks import flow

loopback_only.install()

_ACCOUNTS = ("ANTHROPIC_", "OPENAI_", "GOOGLE_", "GEMINI_", "AWS_", "LANGSMITH_", "LANGCHAIN_")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--framework", default="", help="the framework of this environment, by its section in table.toml")


@pytest.fixture(scope="session")
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--framework"))


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture) -> flow.Seen:
    """What the log of ctxfs says of the requests."""
    return flow.Seen(caplog)


@pytest.fixture(autouse=True, scope="session")
def isolated_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the tests a home directory of their own and no API keys."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOME", str(home))
        for name in [name for name in os.environ if name.startswith(_ACCOUNTS)]:
            environment.delenv(name)
        yield home
