"""What `pip`, `uvx` and `pipx` make of the wheel when it comes from an index, on a machine without a compiler.

The index is a directory of this test, served on 127.0.0.1; the dependencies come from the usual one.
"""

import functools
import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests import toolchains
from tests.packaging.conftest import FRIGHTENING, run
from tests.toolchains import REPOSITORY
from tests.waiting import until

pytestmark = [pytest.mark.package, pytest.mark.timeout(900)]


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each request."""

    def log_message(self, format: str, *arguments: object) -> None:
        """See `BaseHTTPRequestHandler`."""


@pytest.fixture(scope="module")
def index(repaired: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an index (PEP 503) that has the wheel and nothing else."""
    root = tmp_path_factory.mktemp("index")
    page = root / "simple/odradek"
    page.mkdir(parents=True)
    content = repaired.read_bytes()
    (page / repaired.name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    (page / "index.html").write_text(f'<a href="{repaired.name}#sha256={digest}">{repaired.name}</a>')
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with Python, pip, uv, pipx, twine and what every system has for them, but without a compiler."""
    environment = tmp_path_factory.mktemp("tools") / "env"
    run(sys.executable, "-m", "venv", environment, cwd=environment.parent)
    run(environment / "bin/python", "-m", "pip", "install", "-q", "uv", "pipx", "twine", cwd=environment.parent)
    for name in ("dirname", "realpath"):  # uv's scripts need them if the path of the environment is long
        (environment / "bin" / name).symlink_to(toolchains.require_command(name, "coreutils"))
    return environment / "bin"


@pytest.fixture
def environment(index: str, tools: Path, tmp_path: Path) -> dict[str, str]:
    """The variables of a user with a new home directory, who has chosen the index and has no compiler."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name.endswith(("_CERT", "_FILE", "_BUNDLE", "_DIR", "_PROXY", "_proxy")) and not name.startswith("ODRADEK")
    }
    return inherited | {
        "HOME": str(tmp_path),
        "PATH": str(tools),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_EXTRA_INDEX_URL": index,
        "PIPX_DEFAULT_PYTHON": sys.executable,
        "UV_INDEX": index,
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "USE_EMOJI": "0",
    }


def output(command: list[str | Path], environment: dict[str, str], directory: Path) -> str:
    """What a command prints. Fails the test if it fails or prints what frightens."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    assert FRIGHTENING.findall(done.stdout) == [], done.stdout
    return done.stdout


def test_pip_installs_it_by_its_name(environment: dict[str, str], tools: Path, tmp_path: Path) -> None:
    output([tools / "python", "-m", "venv", tmp_path / "env"], environment, tmp_path)
    began = time.monotonic()
    output([tmp_path / "env/bin/pip", "install", "odradek"], environment, tmp_path)
    print(f"pip install: {time.monotonic() - began:.1f} s")
    assert output([tmp_path / "env/bin/odradek", "--version"], environment, tmp_path).startswith("odradek ")


def test_uvx_starts_a_broker(environment: dict[str, str], tools: Path, tmp_path: Path) -> None:
    """The broker is ready, serves, and stops in order at Ctrl-C."""
    settings = ["--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", f"log.dirs={tmp_path / 'data'}"]
    log = tmp_path / "log"
    with log.open("w") as file:
        broker = subprocess.Popen(
            [tools / "uvx", "odradek", "start", *settings],
            cwd=tmp_path,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            address = wait_for_address(log, broker)
            listing = [tools / "uvx", "odradek", "-b", address, "topic", "create", "orders"]
            assert "created topic orders" in output(listing, environment, tmp_path)
        finally:
            if broker.poll() is None:
                os.killpg(broker.pid, signal.SIGINT)  # as a terminal does
            status = broker.wait(60)
    assert status == 0, log.read_text()
    assert FRIGHTENING.findall(log.read_text()) == [], log.read_text()


def wait_for_address(log: Path, broker: subprocess.Popen[bytes]) -> str:
    """The address at which the broker listens, when its log says that it is ready."""

    def address() -> str | None:
        ready = re.search(r"ready after .* PLAINTEXT://(\S+)", log.read_text())
        assert ready or broker.poll() is None, log.read_text()
        return ready[1] if ready else None

    return str(until(address, log.read_text, 300))


@pytest.mark.parametrize("command", [["uvx", "--from", "odradek[demo]"], ["pipx", "run", "--spec", "odradek[demo]"]])
def test_uvx_and_pipx_run_the_demo(
    command: list[str], environment: dict[str, str], tools: Path, tmp_path: Path
) -> None:
    demo = [str(tools / command[0]), *command[1:], "odradek", "demo", "--megabytes", "2"]
    assert "every byte and the order within each file are equal" in output(demo, environment, tmp_path)


def test_pipx_without_the_extra_says_what_the_demo_needs(
    environment: dict[str, str], tools: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [tools / "pipx", "run", "odradek", "demo"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "the demo needs confluent_kafka, which is not installed" in done.stderr


def test_an_index_accepts_the_metadata(repaired: Path, sdist: Path, tools: Path, tmp_path: Path) -> None:
    run(tools / "twine", "check", "--strict", repaired, sdist, cwd=tmp_path)


def test_the_metadata_name_the_licence_the_project_and_the_pythons(repaired: Path) -> None:
    with zipfile.ZipFile(repaired) as archive:
        (directory,) = {name.partition("/")[0] for name in archive.namelist() if name.endswith(".dist-info/METADATA")}
        metadata = HeaderParser().parsestr(archive.read(f"{directory}/METADATA").decode())
        licence = archive.read(f"{directory}/licenses/LICENSE").decode()
        assert "odradek/py.typed" in archive.namelist()
    assert licence == (REPOSITORY / "LICENSE").read_text()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {line.partition(",")[0] for line in metadata.get_all("Project-URL", [])} == {
        "Changelog", "Documentation", "Issues", "Repository",
    }  # fmt: skip
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    assert [text for text in classifiers if text.startswith("License")] == []  # License-Expression replaces them
