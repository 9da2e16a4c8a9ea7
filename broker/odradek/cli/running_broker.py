"""Finds a running broker by its files, asks it how it is, and stops it. Runs in the process of the command."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odradek.cli.interrupt import noting
from odradek.config import load
from odradek.config.pid_file import PID_FILE, STATUS_SOCKET, RunningBroker, read_pid_file, start_ticks
from odradek.testing.process_tree import open_files, wait_for_end
from odradek.testing.status import read_status

ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
_WHICH = ", Kafka's default: name the broker's configuration by --config FILE, or its directory by --data-dir DIR"


class FindError(Exception):
    """A broker that cannot be found, asked or stopped; one line."""


class NotRunningError(FindError):
    """There is none."""


def find(
    config_file: str | None, overrides: Sequence[str], data_dir: str | None, pid: int | None
) -> tuple[str, RunningBroker]:
    """The first log directory and the identity of the broker that is meant.

    By process id, else by directory, else by the configuration it was started with. Raises NotRunningError, FindError,
    ConfigError.
    """
    if sum((pid is not None, data_dir is not None, bool(config_file or overrides))) > 1:
        raise FindError("give only one of --pid, --data-dir, and --config with --set")
    if pid is not None:
        directory = _directory_of(pid)
    else:
        directory = data_dir if data_dir is not None else load(config_file, overrides).log_dirs[0]
    try:
        running = read_pid_file(directory)
    except OSError as error:
        raise FindError(f"cannot read {directory}/{PID_FILE}: {error.strerror}") from None
    except ValueError as error:
        raise FindError(error) from None
    if running is None or not running.is_alive():
        running = _starting(directory) or running
    if running is None:
        told = "" if pid is not None or data_dir is not None or config_file or overrides else _WHICH
        raise NotRunningError(f"no broker runs on {directory} (it has no {PID_FILE}){told}")
    if not running.is_alive():
        raise NotRunningError(f"no broker runs on {directory}: process {running.pid} of its {PID_FILE} has ended")
    if pid is not None and running.pid != pid:
        raise FindError(f"process {pid} belongs to the broker {running.pid} of {directory}; give that id")
    return directory, running


def _starting(directory: str) -> RunningBroker | None:
    """The broker that loads its logs: it answers, but writes the file only when it serves. None if nobody answers."""
    try:
        pid = int(read_status(directory)["pid"])
    except (OSError, KeyError, ValueError):
        return None
    ticks = start_ticks(pid)
    return None if ticks is None else RunningBroker(pid, ticks, ())


def _directory_of(pid: int) -> str:
    """The log directory whose lock the process holds."""
    try:
        files = open_files(pid)
    except FileNotFoundError:
        raise NotRunningError(f"there is no process {pid}") from None
    except PermissionError:
        raise FindError(f"process {pid} belongs to somebody else") from None
    for file in files:
        home = Path(file).parent
        if os.path.basename(file) == ".lock" and any((home / name).exists() for name in (PID_FILE, STATUS_SOCKET)):  # noqa: PTH119
            return str(home)
    raise FindError(f"process {pid} is not a broker of Odradek")


def stop_broker(running: RunningBroker, timeout: float) -> float:
    """SIGTERM, then the end of the process is waited for; seconds that took.

    Raises NotRunningError if it ended before, FindError if it may not be signalled or does not end within ``timeout``
    seconds.
    """
    began = time.monotonic()
    try:
        pidfd = os.pidfd_open(running.pid)
    except ProcessLookupError:
        raise NotRunningError(f"process {running.pid} has ended by itself") from None
    try:
        if not running.is_alive():  # looked at again now that the descriptor holds on to the process
            raise NotRunningError(f"process {running.pid} has ended by itself")
        with noting(lambda: f"broker {running.pid} was asked to stop and may still be running"):
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            except PermissionError:
                raise FindError(f"process {running.pid} belongs to somebody else") from None
            ended = wait_for_end([pidfd], timeout)
        if not ended:
            raise FindError(f"broker {running.pid} was told to stop and still runs after {timeout:g} s")
    finally:
        os.close(pidfd)
    return time.monotonic() - began


def status_of(directory: str, running: RunningBroker) -> dict[str, Any]:
    """What the supervisor answers, with its directory added.

    Raises FindError if it does not answer.
    """
    try:
        report = read_status(directory)
    except TimeoutError:
        raise FindError(f"broker {running.pid} of {directory} does not answer") from None
    except OSError as error:
        raise FindError(f"broker {running.pid} of {directory} does not answer: {error.strerror}") from None
    except ValueError as error:
        raise FindError(f"broker {running.pid} of {directory} answers nonsense: {error}") from None
    return report | {"data_dir": directory}


def address_of(listener: Mapping[str, Any]) -> str:
    """HOST:PORT to connect to, of a metrics.listener in a supervisor's status."""
    host = ANY_HOST.get(listener["host"], listener["host"])
    return f"[{host}]:{listener['port']}" if ":" in host else f"{host}:{listener['port']}"
