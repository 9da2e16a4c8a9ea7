"""Faults of a running broker's processes: kill -9 and SIGSTOP of one process, of the supervisor, or of all of them.

Each function takes the broker and a random generator, applies one fault, waits until it has taken effect, and returns a line
that describes it.
"""

import os
import signal
import time

from tests.waiting import PATIENCE_S, readable, until

STOPPED_S = 1.0


def processes_of(broker, kind):
    """The status entries of the running processes of a kind."""
    return [process for process in broker.processes() if process["kind"] == kind and process["pid"]]


def running_process(broker, rng, kind):
    """Wait for a running process of a kind; its status entry and a pidfd of it, which the caller closes.

    A process may have ended before the supervisor noticed it; such a process is skipped.
    """
    while True:
        victim = rng.choice(until(lambda: processes_of(broker, kind), f"a {kind} runs"))
        try:
            descriptor = os.pidfd_open(victim["pid"])
        except ProcessLookupError:
            continue
        if not readable(descriptor):
            return victim, descriptor
        os.close(descriptor)


def kill_one(broker, rng, kind):
    """Kill one process of a kind with SIGKILL and wait until it has ended."""
    victim, descriptor = running_process(broker, rng, kind)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        assert readable(descriptor, PATIENCE_S)
    finally:
        os.close(descriptor)
    return f"{kind}-{victim['ordinal']} (pid {victim['pid']})"


def stop_one_for_a_while(broker, rng, kind="worker", seconds=STOPPED_S):
    """Stop one process of a kind with SIGSTOP, continue it after `seconds`."""
    victim, descriptor = running_process(broker, rng, kind)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
        time.sleep(seconds)  # the duration is the fault
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)
    except ProcessLookupError:
        pass  # the supervisor killed it meanwhile because it made no progress
    finally:
        os.close(descriptor)
    return f"{kind}-{victim['ordinal']} (pid {victim['pid']}) for {seconds:g} s"


def kill_supervisor(broker, _):
    """Kill the supervisor, wait until its children have ended, and start the broker again."""
    pids = broker.process_ids()
    broker.kill()
    broker.start()
    return f"pid {pids[0]} and then its {len(pids) - 1} children, started again in {broker.start_seconds:.2f} s"


def kill_group(broker, _):
    """Kill all processes at once and start the broker again."""
    count = len(broker.process_ids())
    broker.kill_group()
    broker.start()
    return f"{count} processes, started again in {broker.start_seconds:.2f} s"


def stop_supervisor_for_a_while(broker, _):
    """Stop the supervisor with SIGSTOP for a while."""
    broker.signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)  # the duration is the fault
    broker.signal(signal.SIGCONT)
    return f"pid {broker.pid} for {STOPPED_S:g} s"
