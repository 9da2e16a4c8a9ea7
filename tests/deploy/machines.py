"""Machines with a real systemd on a private network, for tests of what installs, upgrades and removes the broker.

A `Machine` is a container of `systemd-nspawn` that boots a minimal Debian 12 in less than two seconds. Its files are an
overlay over one read-only root directory that all machines share (`debian_root`, made once by debootstrap), so a test
may break whatever it likes. The journal is in memory, and empty after each boot. A `Network` connects machines by
Ethernet. Nothing of the host is changed: mounts, network devices and processes live in namespaces that end with the
test process, however that ends.

Needs root; `require_machines` skips the test elsewhere, or fails it in CI.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests import toolchains
from tests.waiting import until

RELEASE = "bookworm"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "adduser", "ca-certificates", "iproute2", "procps", "python3", "python3-venv",
    "man-db", "bash-completion", "passwd",
)  # fmt: skip
"""What every machine has: an init system, and what the broker's own package depends on."""
JAVA_PACKAGES = ("openjdk-17-jre-headless",)
"""What ZooKeeper and the nightly report need as well."""
COMMAND_TIMEOUT_S = 120.0
BOOT_PATIENCE_S = 180.0
_JOURNAL = "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PR_SET_PDEATHSIG = 1


class CommandFailed(AssertionError):
    """A command on a machine ended with another exit code than 0. The message holds what it printed."""


def require_machines() -> None:
    """Skip the running test, or fail it in CI, unless this process can start machines."""
    if os.geteuid() != 0:
        toolchains.unavailable("machines of systemd-nspawn need root")
    toolchains.require_command("systemd-nspawn", "systemd-container")
    toolchains.require_command("debootstrap", "debootstrap")
    toolchains.require_command("unshare", "util-linux")
    toolchains.require_command("ip", "iproute2")


def debian_root(*more: str) -> Path:
    """Return a root directory of Debian 12 with `PACKAGES` and `more` packages. It must not be changed.

    Making it takes about a minute of CPU time and the network; it is kept in `.build/`.
    """
    require_machines()
    names = sorted({*PACKAGES, *more})

    def build(directory: Path) -> None:
        cache = toolchains.BUILD_DIRECTORY / "debian-packages"
        cache.mkdir(exist_ok=True)
        toolchains.fetch(  # in a mount namespace: if it is killed, /proc must not stay mounted there
            ["unshare", "--mount", "debootstrap", "--variant=minbase", f"--cache-dir={cache}",
             f"--include={','.join(names)}", RELEASE, str(directory)],
        )  # fmt: skip
        (directory / "etc" / "machine-id").write_text("")  # each machine gets its own when it boots
        (directory / "etc" / "resolv.conf").write_text("")  # there are no name servers
        (directory / "etc" / "systemd" / "journald.conf").write_text(_JOURNAL)

    return toolchains.make_product("debian-12", [], build, texts=[RELEASE, _JOURNAL, *names])


class Machine:
    """A booted Debian. Use it as a context manager, or call `start` and `kill`.

    :param name: of its network device on the switch and of its control groups; at most 12 characters. The host name is that
        of the root.
    :param directory: an empty directory on ext4, xfs or another file system that an overlay can write to.
    :param root: what its files are at first, by default `debian_root()`.
    :param read_only_binds: directories and files of the host, by the paths at which the machine has them.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        root: Path | None = None,
        read_only_binds: dict[str, Path] | None = None,
    ) -> None:
        require_machines()
        if not (0 < len(name) <= 12 and name.isalnum()):
            raise ValueError(f"name {name!r}: a machine needs a name of 1 to 12 letters and digits")
        self.name = name
        self.directory = directory
        self.console = directory / "console.log"
        self._lower = root or debian_root()
        self._binds = read_only_binds or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self._groups: list[Path] = []
        for part in ("changed", "work", "merged"):
            (directory / part).mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Machine:
        if self._process is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def leader(self) -> int:
        """The process id of its init process, as this process sees it. Raises AssertionError if it does not run."""
        assert self._leader, f"machine {self.name} does not run"
        return self._leader

    def start(self) -> None:
        """Boot, and return when systemd has started all of its units. Files of the last run are still there."""
        assert self._process is None, f"machine {self.name} runs already"
        mount = shlex.join([
            "mount", "-t", "overlay", "overlay", "-o",
            f"lowerdir={self._lower},upperdir={self.directory / 'changed'},workdir={self.directory / 'work'}",
            str(self.directory / "merged"),
        ])  # fmt: skip
        nspawn = shlex.join([
            "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=passive", "--private-network",
            f"--machine={self.name}", f"--directory={self.directory / 'merged'}",
            *(f"--bind-ro={source}:{target}" for target, source in self._binds.items()), "--boot",
        ])  # fmt: skip
        # The first process of a PID namespace takes all others with it, the machine's too, which outlive nspawn.
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--propagation=private",
                   "sh", "-c", f"{mount} && exec {nspawn}"]  # fmt: skip
        # systemd takes the control group that it finds itself in for the root of all: two machines must not share one.
        self._groups = _make_control_groups(f"odradek-test-{os.getpid()}-{self.name}")
        with self.console.open("ab") as console:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, preexec_fn=self._enter_groups
            )
        try:
            self._leader = until(self._find_leader, lambda: f"{self.name} boots:\n{self._tail()}", BOOT_PATIENCE_S)
            until(self._is_running, lambda: f"{self.name} has started:\n{self._what_it_waits_for()}", BOOT_PATIENCE_S)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Cut its power: all of its processes are killed. `start` boots it again, with the files as they are."""
        process, self._process, self._leader = self._process, None, 0
        if process is None:
            return
        # nspawn is the first process of its PID namespace, and unshare waits for it: when unshare has ended, no process of the
        # machine is left, and no mount.
        for first in _children(process.pid) or [process.pid]:
            os.kill(first, signal.SIGKILL)
        process.wait()
        for group in self._groups:
            _remove_control_group(group)

    def command(self, *command: str, environment: dict[str, str] | None = None) -> list[str]:
        """The command line that runs `command` as root on this machine when it is run here."""
        variables = {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": "/root", **(environment or {})}
        settings = [f"{name}={value}" for name, value in variables.items()]
        return ["nsenter", f"--target={self.leader}", "--all", "--wdns=/root", "env", "-i", *settings, *command]

    def run(
        self,
        *command: str,
        text: str | None = None,
        environment: dict[str, str] | None = None,
        timeout_s: float = COMMAND_TIMEOUT_S,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` on this machine as root.

        :param text: its standard input.
        :raises CommandFailed: if it fails and `check` is true.
        """
        done = subprocess.run(
            self.command(*command, environment=environment),
            input=text, stdin=subprocess.DEVNULL if text is None else None, capture_output=True, text=True,
            timeout=timeout_s,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise CommandFailed(
                f"{self.name}: {shlex.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-6000:]}"
            )
        return done

    def output(self, *command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """What `command` prints on standard output, without the last line end. Raises CommandFailed."""
        return self.run(*command, timeout_s=timeout_s).stdout.rstrip("\n")

    def popen(self, *command: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start `command` on this machine with pipes for its standard streams. It ends with the machine at the latest."""
        return subprocess.Popen(
            self.command(*command, environment=environment),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def put(self, source: Path | str | bytes, destination: str, mode: int = 0o644) -> None:
        """Write a file of this machine: a copy of a `Path`, or a text, or bytes. Makes directories as needed."""
        content = source.read_bytes() if isinstance(source, Path) else source
        done = subprocess.run(
            self.command("install", "-D", f"--mode={mode:o}", "/dev/stdin", destination),
            input=content.encode() if isinstance(content, str) else content, capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode != 0:
            raise CommandFailed(f"{self.name}: writing {destination}: {done.stderr.decode(errors='replace')}")

    def read(self, path: str) -> str:
        """The text of a file of this machine. Raises CommandFailed."""
        return self.run("cat", path).stdout

    def exists(self, path: str) -> bool:
        """Whether this machine has a file or directory at `path`."""
        return self.run("test", "-e", path, check=False).returncode == 0

    def state_of(self, unit: str) -> str:
        """What `systemctl is-active` prints: active, activating, failed, inactive, ..."""
        return self.run("systemctl", "is-active", unit, check=False).stdout.strip()

    def wait_for_state(self, unit: str, state: str = "active", patience_s: float = 90.0) -> None:
        """Return when `unit` is in `state`. Raises AssertionError with the end of its journal."""
        until(
            lambda: self.state_of(unit) == state,
            lambda: f"{self.name}: {unit} is {state}, not {self.state_of(unit)}:\n{self.journal(unit)}",
            patience_s,
        )

    def journal(self, unit: str, lines: int = 40) -> str:
        """The last lines of the journal of `unit`."""
        self.run("journalctl", "--sync", check=False)
        return self.run("journalctl", "--no-pager", f"--unit={unit}", f"--lines={lines}", check=False).stdout

    def _enter_groups(self) -> None:
        _die_with_parent()
        for group in self._groups:
            (group / "cgroup.procs").write_text("0")

    def _find_leader(self) -> int:
        """The process id of init: the child of nspawn, which is the child of unshare. 0 as long as there is none."""
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"{self.name} ended with {code}:\n{self._tail()}"
        for nspawn in _children(self._process.pid):
            for leader in _children(nspawn):
                if _namespace_of(leader) not in (_namespace_of(nspawn), ""):  # else it is a helper of nspawn
                    return leader
        return 0

    def _is_running(self) -> bool:
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"{self.name} ended with {code}:\n{self._tail()}"
        found = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        assert found != "degraded", f"{self.name} started only in part:\n{self._failed_units()}"
        return found == "running"

    def _what_it_waits_for(self) -> str:
        state, jobs = (self.run("systemctl", *words, check=False) for words in (["is-system-running"], ["list-jobs"]))
        return f"{state.stdout}{state.stderr}{jobs.stdout}{jobs.stderr}{self._tail()}"

    def _failed_units(self) -> str:
        units = self.output("systemctl", "--failed", "--plain", "--no-legend").splitlines()
        return "\n".join(self.journal(unit.split()[0]) for unit in units)

    def _tail(self) -> str:
        return self.console.read_text(errors="replace")[-3000:]


class Network:
    """An Ethernet switch without a way out: the machines of a test and this process's own commands on it.

    The subnet is 10.77.0.0/24. The switch has the address 10.77.0.1, which commands of `command` use.
    """

    address = "10.77.0.1"

    def __init__(self) -> None:
        require_machines()
        self._hosts: dict[str, str] = {}
        self._machines: list[Machine] = []
        # A network namespace lives as long as a process is in it: this one, which reads until its input ends.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=_die_with_parent,
        )  # fmt: skip
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"
        self._ip("link", "set", "lo", "up")
        self._ip("link", "add", "switch", "type", "bridge")
        self._ip("address", "add", f"{self.address}/24", "dev", "switch")
        self._ip("link", "set", "switch", "up")

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the switch. The machines lose their network."""
        self._holder.kill()
        self._holder.communicate()

    def attach(self, machine: Machine, number: int) -> str:
        """Connect a machine, after each of its starts, and return its address 10.77.0.`number`.

        All machines attached so far know each other's addresses by name, from /etc/hosts.
        """
        if not 2 <= number <= 254:
            raise ValueError(f"number {number}: must be 2 to 254")
        address = f"10.77.0.{number}"
        self._ip("link", "add", machine.name, "type", "veth", "peer", "name", "eth0", "netns", str(machine.leader))
        self._ip("link", "set", machine.name, "master", "switch", "up")
        machine.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        machine.run("ip", "link", "set", "eth0", "up")
        self._hosts[machine.name] = address
        if machine not in self._machines:
            self._machines.append(machine)
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self._hosts.items())]
        for each in self._machines:
            if each._leader:
                each.put("\n".join(lines) + "\n", "/etc/hosts")
        return address

    def address_of(self, machine: Machine) -> str:
        """The address of an attached machine."""
        return self._hosts[machine.name]

    def command(self, *command: str) -> list[str]:
        """The command line that runs `command` here with the switch as its only network."""
        return ["nsenter", f"--target={self._holder.pid}", "--net", *command]

    def _ip(self, *arguments: str) -> None:
        done = subprocess.run(self.command("ip", *arguments), capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@contextmanager
def machine(name: str, directory: Path, root: Path | None = None, **options: dict[str, Path]) -> Iterator[Machine]:
    """A booted machine, as `Machine`, whose files are removed at the end."""
    made = Machine(name, directory, root, **options)
    with made:
        yield made
    remove_files(made)


def remove_files(machine: Machine) -> None:
    """Remove the files of a machine that does not run. They may belong to any user."""
    subprocess.run(["rm", "-rf", "--one-file-system", str(machine.directory)], check=True)


def _children(process: int) -> Sequence[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except FileNotFoundError:  # it has ended
        return []


def _namespace_of(process: int) -> str:
    """The PID namespace of a process, or an empty text if it has ended."""
    try:
        return str(Path(f"/proc/{process}/ns/pid").readlink())
    except FileNotFoundError:
        return ""


def _make_control_groups(name: str) -> list[Path]:
    """Make a group below that of this process in each hierarchy that systemd uses: its own of version 1, and version 2."""
    mounts = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, kind = line.split(" - ")
        if kind.startswith("cgroup2 "):
            mounts["0::"] = fields.split()[4]
        elif kind.startswith("cgroup ") and "name=systemd" in kind.split()[2].split(","):
            mounts["name=systemd"] = fields.split()[4]
    groups = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        mount = mounts.get("0::" if number == "0" else controllers)
        if mount is not None:
            group = Path(mount) / path.lstrip("/") / name
            group.mkdir()
            groups.append(group)
    return groups


def _remove_control_group(group: Path) -> None:
    """Remove a group and those below it. The kernel may still be removing its last processes."""
    for directory, _, _ in os.walk(group, topdown=False):
        until(partial(_removed, directory), f"{directory} has no processes")


def _removed(group: str) -> bool:
    try:
        Path(group).rmdir()
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    return True


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
