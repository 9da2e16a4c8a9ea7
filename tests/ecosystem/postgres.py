"""A PostgreSQL server with logical decoding, for a test. Runs in the test's process; the server is a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests import toolchains
from tests.ports import reserved
from tests.waiting import until


class Postgres:
    """A server on a free port of 127.0.0.1. ``port``: its port. The user `postgres` needs no password."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not found:
            toolchains.unavailable("PostgreSQL is not installed (Debian's package postgresql)")
        self._binaries = found[-1].parent
        # it refuses to run as root
        self._user: dict[str, Any] = (
            {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        )
        self._resources = ExitStack()
        self.port = 0

    def __enter__(self) -> Postgres:
        with ExitStack() as stack:
            # not in the test's directory, which only the user of the tests may enter
            directory = Path(tempfile.mkdtemp(prefix="odradek-postgres-"))
            stack.callback(shutil.rmtree, directory)
            if self._user:
                shutil.chown(directory, "postgres", "postgres")
            data = str(directory / "data")
            initdb = [str(self._binaries / "initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--no-sync"]
            subprocess.run(initdb, check=True, capture_output=True, cwd=directory, **self._user)
            self.port = stack.enter_context(reserved())
            settings = ("wal_level=logical", "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off")
            options = [word for setting in settings for word in ("-c", setting)]
            command = [str(self._binaries / "postgres"), "-D", data, "-p", str(self.port), *options]
            process = subprocess.Popen(
                command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._user
            )
            stack.callback(process.wait)
            stack.callback(process.send_signal, signal.SIGINT)
            until(self._responds, "PostgreSQL responds")
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _responds(self) -> bool:
        return self._psql("SELECT 1").returncode == 0

    def run(self, sql: str) -> list[list[str]]:
        """Run statements; the rows of their results, as text."""
        done = self._psql(sql)
        assert done.returncode == 0, done.stderr
        return [line.split("|") for line in done.stdout.splitlines()]

    def _psql(self, sql: str) -> subprocess.CompletedProcess[str]:
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        command = [str(self._binaries / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *address]
        return subprocess.run(command, input=sql, text=True, capture_output=True)
