"""Prevents core dumps of a broker whose memory contains secrets: passwords, private keys, SCRAM keys, tokens.

Runs in the supervisor before its first fork; all processes inherit the limit.

The limit is RLIMIT_CORE of one byte. A limit of 0 prevents only core files; the kernel still starts a program that
`kernel.core_pattern` names, and leaves it to that program to obey the limit. With a limit of 1 it does not start the program
either (core(5)), and no core file is that small.

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
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = NO_DUMP_BYTES if hard == resource.RLIM_INFINITY else min(hard, NO_DUMP_BYTES)
    if (soft, hard) != (limit, limit):
        resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
