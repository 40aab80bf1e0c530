"""ctxfs downloads nothing, and no test can reach beyond this machine."""

import socket
import subprocess
import sys

import pytest

from loopback_only import BeyondLoopbackError

pytestmark = pytest.mark.slow

# In a process of its own, where no socket can even be made.
COUNT_WITHOUT_SOCKETS = """
import sys

def forbid(event, args):
    if event.startswith("socket."):
        raise SystemExit(f"{event} {args}")

sys.addaudithook(forbid)
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # these are not installed
import ctxfs
from ctxfs.messages.tokens import default_counter

counter = default_counter()
print(counter.engine, counter.count("hello world"))
"""


@pytest.mark.service
@pytest.mark.parametrize("absent", [(), ("toktok",)], ids=["fast", "plain"])
def test_counting_needs_no_network(absent: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", COUNT_WITHOUT_SOCKETS, *absent]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    engine, count = done.stdout.split()
    assert count == "2"
    assert engine == "tiktoken" or not absent


@pytest.mark.parametrize("address", ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1"])
def test_connections_beyond_loopback_fail_the_test(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as client, pytest.raises(BeyondLoopbackError, match="only use loopback"):
        client.connect((address, 9))
    with socket.socket(family, socket.SOCK_DGRAM) as client, pytest.raises(BeyondLoopbackError):
        client.sendto(b"", (address, 9))


def test_names_beyond_this_machine_are_not_resolved() -> None:
    with pytest.raises(BeyondLoopbackError):
        socket.getaddrinfo("example.invalid", 443)


def test_loopback_is_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert socket.getaddrinfo("localhost", 80)
