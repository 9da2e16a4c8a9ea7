"""``odradek doctor --bundle``: an archive with the facts for a bug report, without secrets. Runs in the command's process.

Each part of the archive is collected alone. A part that cannot be read contains the reason instead, and does not affect
the others. All texts pass `redaction.scrubbed` with the secrets of the broker's configuration.
"""

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek import __version__
from odradek.cli.health.redaction import HIDDEN, scrubbed, secrets_of_environment, without_secrets
from odradek.cli.inspection.local_broker import find, status_of
from odradek.config import properties
from odradek.config.errors import ConfigError

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster

LOG_LINES = 2000
LOG_BYTES = 1 << 20
LIMIT_S = 30.0
IMAGE_PROGRAM = "odradek.cli.container"
IMAGE_CONFIG_FILE = "/etc/odradek/server.properties"
SENSITIVE_TYPE = "password"
README = """\
Made by `odradek doctor --bundle` for a bug report. Read it before you send it.

versions.json            Odradek, Python, its packages, the kernel
doctor.json              the findings of odradek doctor
status.json              the supervisor's status (odradek status --json)
configuration.properties the settings of the file and the command line. Hidden: passwords, JAAS lines, keys that the broker
                         does not know. Comments are left out. Environment variables that may be settings: only their names
broker-settings.json     the settings in effect that are not defaults, from the broker, which returns no passwords
metrics.txt              /metrics, with names of topics, groups, clients and principals
processes.txt            the processes of the broker, their memory, threads and open files
shared-memory.txt        the mappings of the shared memory in each process
log.txt                  the last lines of the broker's log

A part that could not be read contains the reason. Names of hosts, topics, groups and users are not removed.
"""


class BundleError(Exception):
    """The archive cannot be written; one line."""


class Local(NamedTuple):
    """A broker of this machine. :param arguments: the supervisor's command line."""

    pid: int
    status: dict[str, Any]
    arguments: list[str]
    directory: Path


Part = tuple[str, Callable[[], str]]


def write_bundle(
    path: Path,
    findings: Mapping[str, Any],
    data_dir: str | None,
    metrics: Callable[[], str] | None,
    cluster: "Callable[[], Cluster] | None",
) -> int:
    """Write the archive. Returns its size in bytes.

    :param path: must not exist. :param metrics: reads the text of the metrics. :param cluster: connects to the broker.
    :raises BundleError: the file exists, or cannot be written.
    """
    secrets: set[str] = set()
    local = _text_or_reason(lambda: _local(data_dir)) if data_dir is not None else "no --data-dir was given"
    broker = local if isinstance(local, Local) else None
    missing = local if isinstance(local, str) else ""

    def of_broker(collect: Callable[[Local], str]) -> Callable[[], str]:
        return lambda: collect(broker) if broker is not None else _lines([missing])

    parts: list[Part] = [
        ("README.txt", lambda: README),
        ("configuration.properties", of_broker(lambda broker: _configuration(broker, secrets))),
        ("versions.json", lambda: _json(_versions())),
        ("doctor.json", lambda: _json(findings)),
        ("status.json", of_broker(lambda broker: _json(broker.status))),
        (
            "broker-settings.json",
            lambda: _settings(cluster) if cluster is not None else _lines(["the broker did not respond"]),
        ),
        ("metrics.txt", metrics or (lambda: _lines(["no --metrics, and no metrics.listener of --data-dir"]))),
        ("processes.txt", of_broker(lambda broker: _lines(_processes(broker)))),
        ("shared-memory.txt", of_broker(lambda broker: _lines(_shared_memory(broker)))),
        ("log.txt", of_broker(lambda broker: _lines(_log(broker)))),
    ]
    texts = {name: str(_text_or_reason(collect)) for name, collect in parts}  # all, before the first is scrubbed
    try:
        return _write(path, {name: scrubbed(text, secrets) for name, text in texts.items()})
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror}") from None


def _text_or_reason(collect: Callable[[], Any]) -> Any:
    """What a part contains, or the reason why it could not be collected."""
    try:
        return collect()
    except Exception as error:  # of any part: the others are still useful
        return f"not collected: {type(error).__name__}: {error}\n"


def _local(data_dir: str | None) -> Local:
    directory, running = find(None, (), data_dir, None)
    arguments = Path(f"/proc/{running.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return Local(running.pid, status_of(directory, running), arguments, Path(f"/proc/{running.pid}/cwd").readlink())


def _versions() -> dict[str, Any]:
    packages = {distribution.name: distribution.version for distribution in metadata.distributions()}
    return {
        "odradek": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "cpus": os.cpu_count(),
        "packages": dict(sorted(packages.items())),
    }


def _configuration(broker: Local, secrets: set[str]) -> str:
    """The settings of the file and of --set that the supervisor's command line names, without secrets; these are added to
    `secrets`. Of environment variables that may be settings, only the names: broker-settings.json has their values."""
    settings: list[tuple[str, str]] = []
    lines: list[str] = []
    variables = _environment(broker.pid)
    secrets |= secrets_of_environment(variables)
    for option, value in _options(broker.arguments):
        if option == "--config":
            file = broker.directory / value
            lines.append(f"# {file}")
            try:
                text = properties.decode(file.read_bytes())
                settings += [(setting.name, setting.value) for setting in properties.parse(text, str(file))]
            except (OSError, ConfigError) as error:
                lines.append(f"# not read: {type(error).__name__}")
        elif option == "--set":
            name, _, text = value.partition("=")
            settings.append((name.strip(), text))
    found = without_secrets(settings)
    secrets |= found.secrets
    lines += [f"# environment variable {name}" for name, _ in variables if name.startswith(("KAFKA_", "ODRADEK_"))]
    return _lines([*lines, *(f"{name}={text}" for name, text in found.shown)])


def _environment(pid: int) -> list[tuple[str, str]]:
    """The environment variables of a process, by name."""
    words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return sorted((name, text) for name, equals, text in (word.partition("=") for word in words) if equals)


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options --config and --set of a command line, with their values. The image's program adds the file of the image."""
    if IMAGE_PROGRAM in arguments and not any(word.partition("=")[0] == "--config" for word in arguments):
        yield "--config", IMAGE_CONFIG_FILE
    for place, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option in ("--config", "--set") and equals:
            yield option, value
        elif word in ("--config", "--set") and place + 1 < len(arguments):
            yield word, arguments[place + 1]


def _settings(connect: "Callable[[], Cluster]") -> str:
    """The broker's settings that are not defaults. The broker returns no passwords; they would be hidden here, too."""
    from odradek.clients.configs import DEFAULT_SOURCE, SOURCES, TYPES, Resource, describe

    with connect() as cluster:
        found = {
            str(node): {
                name: {
                    "value": HIDDEN if entry.sensitive or TYPES.get(entry.type) == SENSITIVE_TYPE else entry.value,
                    "source": SOURCES.get(entry.source, entry.source),
                }
                for name, entry in describe(cluster, Resource("broker", str(node))).items()
                if entry.source != DEFAULT_SOURCE
            }
            for node in cluster.view().brokers
        }
    return _json({node: dict(_without_secrets(entries)) for node, entries in found.items()})


def _without_secrets(entries: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries of a broker. The values that are hidden in the configuration file are hidden here, too."""
    for name, entry in entries.items():
        ((_, text),) = without_secrets([(name, str(entry["value"] or ""))]).shown
        yield name, entry | {"value": text if entry["value"] is not None else None}


def _processes(broker: Local) -> Iterator[str]:
    """A row for each process of the broker."""
    yield "PID       NAME             RSS kB    PSS kB    PRIVATE kB  THREADS  FILES"
    for row in broker.status["processes"]:
        pid = row["pid"]
        status = _fields(Path(f"/proc/{pid}/status"))
        rollup = _fields(Path(f"/proc/{pid}/smaps_rollup"))
        private = sum(int(rollup.get(name, "0 kB").split()[0]) for name in ("Private_Clean", "Private_Dirty"))
        try:
            files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        except OSError as error:
            yield f"{pid:<9} {row['kind']:<16} not read: {error.strerror}"
            continue
        rss, pss = (values.get(name, "0 kB").split()[0] for values, name in ((status, "VmRSS"), (rollup, "Pss")))
        name, threads = status.get("Name", ""), status.get("Threads", "")
        yield f"{pid:<9} {name:<16} {rss:>8}  {pss:>8}  {private:>10}  {threads:>7}  {files:>5}"


def _shared_memory(broker: Local) -> Iterator[str]:
    """The mappings of shared memory in each process: address range, rights, name, and their sizes from smaps."""
    wanted = ("Size", "Rss", "Pss", "Private_Dirty", "Shared_Dirty")
    for row in broker.status["processes"]:
        yield f"{row['kind']} {row['ordinal']} (pid {row['pid']})"
        shown = False
        try:
            lines = Path(f"/proc/{row['pid']}/smaps").read_text(errors="replace").splitlines()
        except OSError as error:
            yield f"  not read: {error.strerror}"
            continue
        for line in lines:
            name = line.split(None, 1)[0]
            if not name.endswith(":"):
                shown = "memfd:" in line
                if shown:
                    yield f"  {line}"
            elif shown and name[:-1] in wanted:
                yield f"    {line}"


def _fields(file: Path) -> dict[str, str]:
    """The fields of a file of /proc with lines `Name:  value`; empty if the process has ended."""
    try:
        text = file.read_text()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _log(broker: Local) -> list[str]:
    """The last lines of the file that is the supervisor's standard error, or of the journal of its unit."""
    place = Path(f"/proc/{broker.pid}/fd/2")
    target = place.readlink()
    if target.is_absolute() and target.is_file():
        with place.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            return file.read(LOG_BYTES).decode(errors="replace").rstrip("\n").split("\n")[-LOG_LINES:]
    if shutil.which("journalctl") is None:
        return [f"the log goes to {target}, which this command cannot read, and there is no journalctl"]
    command = ["journalctl", "--no-pager", "--output=short-iso", f"--lines={LOG_LINES}", f"_PID={broker.pid}"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False)
    return (done.stdout or done.stderr).rstrip("\n").split("\n")


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def _lines(lines: Sequence[str] | Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _write(path: Path, texts: Mapping[str, str]) -> int:
    """Write the archive, readable by its owner only. Raises OSError."""
    directory = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz") or "bundle"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in texts.items():
            data = text.encode(errors="replace")
            entry = tarfile.TarInfo(f"{directory}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return path.stat().st_size
