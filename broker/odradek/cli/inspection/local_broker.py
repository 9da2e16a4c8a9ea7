"""Finds a running broker of this machine by its files, reads its status, and stops it. Runs in the process of the command."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odradek.cli.framework.failure import AS_OTHER_USER, reason_of
from odradek.cli.framework.interrupt import interrupt_note
from odradek.config.broker_config import load
from odradek.config.pid_file import PID_FILE, STATUS_SOCKET, BrokerIdentity, read_pid_file, start_ticks
from odradek.testing.process_tree import open_files, wait_for_end
from odradek.testing.status import read_status

LOCK_FILE = ".lock"
ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
_DEFAULT_DIRECTORY_HINT = (
    ", the default log directory: select the broker with --config FILE, --data-dir DIR or --pid PID"
)
_SELECTED_DIRECTORY_HINT = (
    ": select the broker by the first directory of its log.dirs, or by the process id of its supervisor"
)


class FindError(Exception):
    """The broker cannot be found, does not respond, or cannot be stopped; one line.

    ``warnings``: one line for each unknown key of the configuration that selected the broker.
    """

    warnings: Sequence[str] = ()


class NotRunningError(FindError):
    """The broker is not running."""


def find(
    config_file: str | None, overrides: Sequence[str], data_dir: str | None, pid: int | None
) -> tuple[str, BrokerIdentity]:
    """The first log directory and the identity of a running broker.

    The broker is selected by process id, by directory, or by the configuration that it was started with. Raises
    NotRunningError, FindError, ConfigError.
    """
    if sum((pid is not None, data_dir is not None, bool(config_file or overrides))) > 1:
        raise FindError("give only one of --pid, --data-dir, and --config with --set")
    is_selected = bool(pid is not None or data_dir is not None or config_file or overrides)
    if pid is not None:
        directory = _directory_of(pid)
    elif data_dir is not None:
        directory = data_dir
    else:
        config = load(config_file, overrides)
        directory = config.log_dirs[0]
        try:
            return directory, _broker_of(directory, None, is_selected)
        except FindError as error:
            error.warnings = config.unknown_key_warnings
            raise
    return directory, _broker_of(directory, pid, is_selected)


def _broker_of(directory: str, pid: int | None, is_selected: bool) -> BrokerIdentity:
    """The broker that runs on the directory. Raises NotRunningError, FindError.

    :param pid: the process id with which the broker was selected. :param is_selected: False for the default directory.
    """
    try:
        running = read_pid_file(directory)
    except OSError as error:
        raise FindError(f"cannot read {directory}/{PID_FILE}: {reason_of(error)}") from None
    except ValueError as error:
        raise FindError(error) from None
    if running is None or not running.is_alive():
        running = _starting(directory) or running
    if running is None:
        hint = _SELECTED_DIRECTORY_HINT if is_selected else _DEFAULT_DIRECTORY_HINT
        raise NotRunningError(f"no broker runs on {directory} (it has no {PID_FILE}){hint}")
    if not running.is_alive():
        raise NotRunningError(f"no broker runs on {directory}: process {running.pid} of its {PID_FILE} has ended")
    _check_lock(directory, running.pid)
    if pid is not None and running.pid != pid:
        raise FindError(
            f"process {pid} is not the supervisor of the broker of {directory}; its supervisor is process {running.pid}"
        )
    return running


def _check_lock(directory: str, pid: int) -> None:
    """Raise FindError if the process does not hold the lock of the directory open: the files in the directory are written by
    the broker's account, and must not name a process that root then ends."""
    try:
        files = open_files(pid)
    except FileNotFoundError:
        raise NotRunningError(f"no broker runs on {directory}: process {pid} of its {PID_FILE} has ended") from None
    except PermissionError:
        return  # of another user: this one cannot end it either
    if str(Path(directory).resolve() / LOCK_FILE) not in files:
        raise FindError(
            f"process {pid}, which {directory}/{PID_FILE} names, is no broker of this directory: it does not hold its "
            f"{LOCK_FILE}; nothing was done"
        )


def _starting(directory: str) -> BrokerIdentity | None:
    """A broker that is loading its logs: it answers status requests, but writes the PID file only when it serves.

    None if no broker responds.
    """
    try:
        pid = int(read_status(directory)["pid"])
    except (OSError, KeyError, ValueError):
        return None
    ticks = start_ticks(pid)
    return None if ticks is None else BrokerIdentity(pid, ticks, ())


def _directory_of(pid: int) -> str:
    """The log directory whose lock file the process holds open. Raises NotRunningError, FindError."""
    try:
        files = open_files(pid)
    except FileNotFoundError:
        raise NotRunningError(f"process {pid} does not exist") from None
    except PermissionError:
        raise FindError(f"process {pid} belongs to another user; {AS_OTHER_USER}") from None
    for file in files:
        directory = Path(file).parent
        if Path(file).name == LOCK_FILE and any((directory / name).exists() for name in (PID_FILE, STATUS_SOCKET)):
            return str(directory)
    raise FindError(f"process {pid} is not an Odradek broker")


def stop_broker(running: BrokerIdentity, timeout: float) -> float:
    """Send SIGTERM and wait until the process has ended; return the seconds that it took.

    Raises NotRunningError if the process has already ended, FindError if it belongs to another user or does not end within
    ``timeout`` seconds.
    """
    began = time.monotonic()
    try:
        pidfd = os.pidfd_open(running.pid)
    except ProcessLookupError:
        raise NotRunningError(f"process {running.pid} has already ended") from None
    try:
        if not running.is_alive():  # checked again, because the descriptor now keeps the id from being reused
            raise NotRunningError(f"process {running.pid} has already ended")
        with interrupt_note(lambda: f"SIGTERM was sent to broker {running.pid}, which may still be running"):
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            except PermissionError:
                raise FindError(f"process {running.pid} belongs to another user; {AS_OTHER_USER}") from None
            ended = wait_for_end([pidfd], timeout)
        if not ended:
            raise FindError(
                f"broker {running.pid} still runs {timeout:g} s after SIGTERM; it may still be stopping:"
                f" `odradek status --pid {running.pid}` shows its state, and a longer --timeout waits for it"
            )
    finally:
        os.close(pidfd)
    return time.monotonic() - began


def status_of(directory: str, running: BrokerIdentity) -> dict[str, Any]:
    """The supervisor's status, with ``data_dir`` added. Raises FindError if the supervisor does not respond."""
    try:
        report = read_status(directory)
    except TimeoutError:
        raise FindError(f"broker {running.pid} of {directory} does not respond to a status request") from None
    except OSError as error:
        raise FindError(
            f"broker {running.pid} of {directory} does not respond to a status request: {reason_of(error)}"
        ) from None
    except ValueError as error:
        raise FindError(f"broker {running.pid} of {directory} returned an invalid status: {error}") from None
    return report | {"data_dir": directory}


def address_of(listener: Mapping[str, Any]) -> str:
    """HOST:PORT at which to connect to a metrics.listener from a supervisor's status."""
    host = ANY_HOST.get(listener["host"], listener["host"])
    return f"[{host}]:{listener['port']}" if ":" in host else f"{host}:{listener['port']}"
