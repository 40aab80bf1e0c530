"""No socket leaves this machine: for the tests (conftest.py), and for a program that a test runs.

As a program: ``python loopback_only.py program.py [argument …]`` runs the program under the same rule.
"""

import runpy
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any


class BeyondLoopbackError(BaseException):
    """A test tried to reach another machine. It is no ``Exception``, so that no retry can swallow it."""


def is_local(host: object) -> bool:
    if host in (None, "", "localhost", b"localhost"):
        return True
    try:
        return ip_address(host.decode() if isinstance(host, bytes) else str(host)).is_loopback
    except ValueError:
        return False


def guard(event: str, args: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = args[1]
        local = not isinstance(address, tuple) or is_local(address[0])  # a str is a Unix socket's path
    elif event == "socket.getaddrinfo":
        address, local = args[0], is_local(args[0])
    else:
        return
    if not local:
        raise BeyondLoopbackError(f"{event} to {address!r}: tests may only use loopback")


def install() -> None:
    """Watch this process to its end: an audit hook sees what a patch of ``socket`` would miss, and stays."""
    sys.addaudithook(guard)


if __name__ == "__main__":
    install()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
