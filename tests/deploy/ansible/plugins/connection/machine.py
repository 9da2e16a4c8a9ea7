"""Ansible connection for tests: commands on a machine of `tests.deploy.machines`, by nsenter into its init process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: machine
short_description: Enters the namespaces of a machine of systemd-nspawn
description:
  - For tests. Runs commands as root on a machine that this computer runs.
options:
  leader:
    description: The process id of the machine's init process.
    type: int
    required: true
    vars:
      - name: machine_leader
"""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Connection(ConnectionBase):
    """See the module."""

    transport = "machine"
    has_pipelining = True

    def _connect(self) -> Connection:
        leader = self.get_option("leader")
        if not Path(f"/proc/{leader}/ns/pid").exists():
            raise AnsibleConnectionFailure(f"no machine has the init process {leader}")
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Run a shell command; return its exit code and what it printed."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        done = self._run(["/bin/sh", "-c", cmd], in_data)
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file to the machine."""
        super().put_file(in_path, out_path)
        done = self._run(["dd", f"of={out_path}", "bs=1M", "status=none"], Path(in_path).read_bytes())
        if done.returncode:
            raise AnsibleError(f"cannot write {out_path}: {done.stderr.decode()}")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file from the machine."""
        super().fetch_file(in_path, out_path)
        done = self._run(["cat", in_path], None)
        if done.returncode:
            raise AnsibleError(f"cannot read {in_path}: {done.stderr.decode()}")
        Path(out_path).write_bytes(done.stdout)

    def close(self) -> None:
        """Nothing is open between two commands."""
        self._connected = False

    def _run(self, command: list[str], data: bytes | None) -> subprocess.CompletedProcess[bytes]:
        enter = ["nsenter", f"--target={self.get_option('leader')}", "--all", "--wdns=/root"]
        return subprocess.run(
            [*enter, "env", "-i", f"PATH={PATH}", "LANG=C.UTF-8", "HOME=/root", *command],
            input=data if data is not None else b"", capture_output=True, check=False,
        )  # fmt: skip
