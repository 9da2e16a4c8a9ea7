"""Prevents core dumps of a broker whose memory contains secrets: passwords, private keys, SCRAM keys, tokens.

Runs in the supervisor before its first fork; all processes inherit both settings.

Two settings of the kernel, because each has a gap that the other closes:

- RLIMIT_CORE of one byte. A limit of 0 prevents only core files: if `kernel.core_pattern` names a program (a pipe, as with
  systemd-coredump), the kernel ignores the limit, starts the program, and leaves it to the program to obey the limit. A limit
  of exactly 1 makes the kernel skip the program too (core(5)), and no core file is that small. A process without
  CAP_SYS_RESOURCE cannot raise a hard limit of 0 to 1.
- /proc/self/coredump_filter of 0: whatever receives a dump, it contains the registers and the names of mapped files, but no
  memory.

PR_SET_DUMPABLE is not used: the files in /proc/PID of such a process belong to root, so the broker could not report its own
open files and disk use, and `odradek doctor`, `py-spy` and others would need root. Whoever has the broker's account can read
its files anyway.
"""

import logging
import resource

from odradek.config.broker_config import BrokerConfig
from odradek.config.table import broker_key

log = logging.getLogger("odradek.supervisor")

KEY = "odradek.core.dumps"
NO_DUMP_BYTES = 1
FILTER = "/proc/self/coredump_filter"
CREDENTIAL_FILES = ("metrics.listener.password.file", "metrics.listener.token.file")


def holds_secrets(config: BrokerConfig) -> bool:
    """Whether the broker has secrets in its memory: those of listeners with TLS or SASL, or of keys that are secrets."""
    if any(listener.protocol != "PLAINTEXT" for listener in config.listeners):
        return True
    if any(config[name] for name in CREDENTIAL_FILES):
        return True
    return any((row := broker_key(name)) is not None and row.sensitive and config.get(name) for name in config.settings)


def limit_core_dumps(config: BrokerConfig) -> None:
    """Prevent core dumps of this process and its later children, if it holds secrets and the configuration does not permit
    them."""
    if not holds_secrets(config):
        return
    if config[KEY]:
        log.warning("%s=true: a core dump of this broker contains its passwords and private keys", KEY)
        return
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (NO_DUMP_BYTES, NO_DUMP_BYTES))
    except ValueError:  # the hard limit is 0, and this process may not raise it
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    exclude_memory()


def exclude_memory() -> None:
    """Leave the memory of this process and of its later children out of core dumps."""
    try:
        with open(FILTER, "w") as file:
            file.write("0")
    except FileNotFoundError:
        return  # this kernel writes no core dumps
    except OSError as error:
        log.error(
            "cannot write %s: %s; if kernel.core_pattern names a program, it may receive a dump with the passwords and private "
            "keys of this broker",
            FILTER,
            error.strerror,
        )
