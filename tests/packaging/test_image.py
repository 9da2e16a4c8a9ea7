"""The image, built by the steps of its Containerfile, and run as container runtimes do: read-only, as its user."""

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.packaging import images
from tests.toolchains import REPOSITORY
from tests.waiting import until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(2000)]

MOST_BYTES = 120_000_000
MOST_PACKED_BYTES = 60_000_000
OWN_BYTES = 13_000_000
"""What the native modules of Odradek take in a release. These tests compile them without optimization: 7 MB more."""
READY = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9404/readyz', timeout=5).status)"


class Container:
    """A running image. `leader` is the process id of its first process, as this process sees it."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.leader = until(self._find_leader, lambda: f"a process of the image:\n{self.printed()}")

    def _find_leader(self) -> int:
        assert self._process.poll() is None, self.printed()
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for child in map(int, children):
            command = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if b"odradek.cli.container" in command and b"-ISc" not in command:
                return child
        return 0

    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def run(self, *command: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as ``podman exec`` does."""
        entered = ["nsenter", f"--target={self.leader}", "--mount", "--net", "--pid", "--ipc", "--uts"]
        as_user = ["--setuid=10001", "--setgid=10001", "--wd=/", "--"]
        variables = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        return subprocess.run(
            [*entered, *as_user, *command],
            input=text,
            capture_output=True,
            text=True,
            env=variables,
            timeout=120,
            check=False,
        )

    def output(self, *command: str, text: str | None = None) -> str:
        done = self.run(*command, text=text)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def is_ready(self) -> bool:
        assert self._process.poll() is None, self.printed()
        return self.run("/usr/bin/python3.11", "-c", READY).stdout == "200\n"

    def stop(self) -> int:
        """Send SIGTERM to the first process, and return the exit code of the container."""
        os.kill(self.leader, 15)
        return self._process.wait(timeout=120)


@contextmanager
def running(image: Path, volume: Path, log: Path, *arguments: str) -> Iterator[Container]:
    config = images.settings(image)
    program = [*config["Entrypoint"], *arguments]
    binds = [f"--bind={volume}:{config['Volumes'][0]}"]
    advertised = "ADVERTISED=PLAINTEXT://localhost:9092"
    command = images.command_of(image, f"image{os.getpid()}", program, binds, advertised)
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process,
    ):
        try:
            yield Container(process, log)
        finally:
            if process.poll() is None:
                process.kill()


def test_the_image_is_small_and_has_nothing_that_a_broker_does_not_need(image: Path) -> None:
    root = image / "rootfs"
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    size = images.size_of(image)
    own = sum(path.stat().st_size for path in files if path.suffix == ".so" and "odradek/_ext" in str(path))
    packed = images.packed_size_of(image)
    print(f"{size:,} bytes, {own:,} of them native modules; {packed:,} bytes compressed")
    assert size - own + OWN_BYTES <= MOST_BYTES
    assert packed <= MOST_PACKED_BYTES
    assert [path for path in files if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)] == []
    assert sorted(path.name for path in (root / "usr/bin").iterdir()) == ["python3.11"]
    assert list((root / "usr/sbin").iterdir()) == []
    assert {path.name for path in files} & {"sh", "bash", "dash", "busybox", "apt-get", "dpkg", "pip"} == set()
    owned = [path.relative_to(root) for path in root.rglob("*") if path.lstat().st_uid or path.lstat().st_gid]
    assert sorted(map(str, owned)) == ["bitnami/kafka", "kafka", "var/lib/kafka/data", "var/lib/odradek"]
    writable = [path for path in root.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    assert writable == [root / "tmp"]


def test_the_image_serves_read_only_as_its_user_and_stops_in_order(image: Path, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    os.chown(volume, 10001, 10001)
    command = "/opt/odradek/venv/bin/odradek"
    arguments = ("--config", "/etc/odradek/server.properties", "--set", "advertised.listeners=${env:ADVERTISED}")
    with running(image, volume, tmp_path / "log", *arguments) as container:
        until(container.is_ready, container.printed)
        status = Path(f"/proc/{container.leader}/status").read_text()
        assert "\nUid:\t10001\t10001\t10001\t10001\n" in status
        assert "\nCapEff:\t0000000000000000\n" in status
        assert container.run("/usr/bin/python3.11", "-c", "open('/opt/new', 'w')").stderr.endswith(
            "OSError: [Errno 30] Read-only file system: '/opt/new'\n"
        )
        container.output(command, "topic", "create", "orders", "-p", "1")
        container.output(command, "produce", "orders", text="one\ntwo\n")
        assert container.output(command, "consume", "orders", "--from", "beginning", "--exit") == "one\ntwo\n"
        assert container.stop() == 0
        lines = [json.loads(line) for line in container.printed().splitlines() if line.startswith("{")]
        assert lines[-1]["message"] == "stopped"
        assert [line for line in lines if line["level"] in ("ERROR", "FATAL")] == []
    with running(image, volume, tmp_path / "log", *arguments) as container:
        until(container.is_ready, container.printed)
        consumed = container.output(command, "consume", "orders", "--from", "beginning", "--exit", "-g", "group")
        assert consumed == "one\ntwo\n"  # with librdkafka
        assert container.stop() == 0


def test_every_module_of_the_broker_can_be_imported_in_the_image(image: Path, tmp_path: Path) -> None:
    """No library, and no part of Python's standard library, is missing."""
    sources = [path for path in (REPOSITORY / "_ext").glob("*/*.pyx") if path.parent.name != "testing"]
    native = sorted(f"odradek._ext.{path.parent.name}.{path.stem}" for path in sources)  # pkgutil finds the files alone
    script = (
        "import importlib, pkgutil, sys, odradek, confluent_kafka, puresasl, sqlite3, ssl, zoneinfo\n"
        "zoneinfo.ZoneInfo('Europe/Prague'); ssl.create_default_context().get_ca_certs()[0]\n"
        "left_out = ('odradek.jobs', 'odradek.testing', 'odradek.cli.machine.demo')\n"
        f"native = {native}\n"
        "names = [m.name for m in pkgutil.walk_packages(odradek.__path__, 'odradek.') if not m.name.startswith(left_out)]\n"
        "names = [name for name in names if not name.endswith('._native')] + native\n"
        "failed = []\n"
        "for name in names:\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError as error: failed.append(f'{name}: {error}')\n"
        "print(len(names), *failed, sep='\\n')\n"
    )
    command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", "--private-network", "--read-only",
               "--timezone=off", f"--directory={image / 'rootfs'}", f"--machine=imports{os.getpid()}", "--",
               "/opt/odradek/venv/bin/python", "-c", script]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    count, *failed = done.stdout.splitlines() or ["0"]
    assert int(count) > 300, done.stderr
    assert failed == []
