"""Metrics, health and usage.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    BOOLEAN,
    INT,
    LONG,
    LOW,
    MEDIUM,
    READ_ONLY,
    STRING,
    ConfigKey,
    Pattern,
    Range,
)

_PORT = r"(6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]\d{4}|\d{1,4})"
ADDRESS = Pattern(r"|(\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]*):" + _PORT, "host:port with a port from 0 to 65535, or empty")

TITLE = "Metrics, health and usage."

# fmt: off
KEYS = (
    ConfigKey("metrics.listener", STRING, "127.0.0.1:9404", ADDRESS, MEDIUM, READ_ONLY,
        "The address, as host:port, at which the broker serves /metrics, /healthz, /readyz, /usage and /spool over HTTP. Port "
        "0 means a free port, an empty host means all interfaces, and an empty value disables the listener. If the key is not "
        "set and another process has the default port, the broker uses a free one and logs a warning. Odradek's own key."),
    ConfigKey("metrics.listener.tls", BOOLEAN, False, None, LOW, READ_ONLY,
        "Whether metrics.listener uses TLS (https). Its key store is that of ssl.keystore.location, or "
        "listener.name.metrics.ssl.keystore.location; listener.name.metrics.ssl.client.auth asks for client certificates. "
        "Odradek's own key."),
    ConfigKey("metrics.listener.password.file", STRING, None, None, LOW, READ_ONLY,
        "The path of a file with user:password in each line. If set, /metrics, /usage and /spool require one of them (HTTP "
        "basic authentication), or a token of metrics.listener.token.file. A changed file is read again. Odradek's own key."),
    ConfigKey("metrics.listener.token.file", STRING, None, None, LOW, READ_ONLY,
        "The path of a file with a token in each line. If set, /metrics, /usage and /spool require one of them (Authorization: "
        "Bearer), or a password of metrics.listener.password.file. A changed file is read again. Odradek's own key."),
    ConfigKey("metrics.max.topics", INT, 10_000, Range(0), LOW, READ_ONLY,
        "The maximum number of topics that have their own series in /metrics. All other topics are counted together as "
        "topic=\"other\". Odradek's own key."),
    ConfigKey("metrics.max.bytes", LONG, 134_217_728, Range(1_048_576), LOW, READ_ONLY,
        "The maximum size in bytes of the part of /metrics whose labels clients choose (consumer groups, client ids, "
        "principals, users, and the names and versions of their software). One metric may use a sixteenth of it. The "
        "broker omits further series; odradek_metrics_left_out_series is their number. Odradek's own key."),
    ConfigKey("metrics.max.clients", INT, 1000, Range(0), LOW, READ_ONLY,
        "The maximum number of clients (principal and client id) that have their own series in /metrics. All other "
        "clients are counted together as \"other\". It is also the maximum number of consumer groups with series. "
        "Odradek's own key."),
    ConfigKey("metrics.usage.idle.ms", LONG, 3_600_000, Range(1000), LOW, READ_ONLY,
        "The time in ms without use after which the broker can give the entry of a client or topic in the usage tables "
        "to another one. Odradek's own key."),
    ConfigKey("usage.spool.dir", STRING, "", None, LOW, READ_ONLY,
        "The directory to which the broker writes usage data (the spool). Empty: files usage-* in the first log "
        "directory. Odradek's own key."),
    ConfigKey("usage.spool.interval.ms", LONG, 60_000, Range(1000, 3_600_000), LOW, READ_ONLY,
        "The time in ms between two writes of usage data to the spool. Odradek's own key."),
    ConfigKey("usage.spool.max.bytes", LONG, 1 << 30, Range(0), LOW, READ_ONLY,
        "The maximum size in bytes of all files of the usage spool. Above it, the broker deletes the oldest files. 0 "
        "disables the spool. Odradek's own key."),
)
