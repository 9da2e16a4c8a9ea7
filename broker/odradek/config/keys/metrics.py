"""Metrics, health and usage.

Rows of the table of keys: type, default and range as in Kafka 4.3, or 3.9 for what 4.x dropped.
"""

from odradek.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    NONE,
    NOW,
    READ_ONLY,
    STRING,
    ConfigKey,
    OneOf,
    Pattern,
    Range,
)

_PORT = r"(6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]\d{4}|\d{1,4})"
ADDRESS = Pattern(r"|(\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]*):" + _PORT, "host:port with a port from 0 to 65535, or empty")

TITLE = "Metrics, health and usage."

# fmt: off
KEYS = (
    ConfigKey("metric.reporters", LIST, (), None, LOW, CLUSTER_WIDE, NONE,
        "Java classes that report metrics; here metrics.listener serves them."),
    ConfigKey("kafka.metrics.reporters", LIST, (), None, LOW, READ_ONLY, NONE,
        "The same for Kafka's older metrics."),
    ConfigKey("kafka.metrics.polling.interval.secs", INT, 10, Range(1), LOW, READ_ONLY, NONE,
        "How often they are called."),
    ConfigKey("auto.include.jmx.reporter", BOOLEAN, True, None, LOW, READ_ONLY, NONE,
        "Whether JMX is among them (until Kafka 3.9)."),
    ConfigKey("metrics.num.samples", INT, 2, Range(1), LOW, READ_ONLY, NONE,
        "Samples over which Kafka's rates are measured."),
    ConfigKey("metrics.sample.window.ms", LONG, 30000, Range(1), LOW, READ_ONLY, NONE,
        "The length of such a sample."),
    ConfigKey("metrics.recording.level", STRING, "INFO",
        OneOf(("INFO", "DEBUG", "TRACE"), any_case=True), LOW, READ_ONLY, NONE,
        "How detailed Kafka's metrics are."),
    ConfigKey("metrics.listener", STRING, "127.0.0.1:9404", ADDRESS, MEDIUM, READ_ONLY, NOW,
        "The address, as host:port, at which the broker serves /metrics, /healthz, /readyz and /usage over HTTP. Port 0 is a "
        "free port, an empty host means all interfaces, and an empty value turns the listener off. Odradek's own key."),
    ConfigKey("metrics.max.topics", INT, 10_000, Range(0), LOW, READ_ONLY, NOW,
        "How many topics have series of their own in /metrics; the counts of all others are shown as topic=\"other\". "
        "Odradek's own key."),
    ConfigKey("metrics.max.clients", INT, 1000, Range(0), LOW, READ_ONLY, NOW,
        "How many clients (principal and client id) have series of their own in /metrics; all others are shown as \"other\". "
        "Odradek's own key."),
    ConfigKey("metrics.usage.idle.ms", LONG, 3_600_000, Range(1000), LOW, READ_ONLY, NOW,
        "After how many ms without use a client or topic may lose its place in the tables of usage to another. Odradek's own "
        "key."),
    ConfigKey("usage.spool.dir", STRING, "", None, LOW, READ_ONLY, NOW,
        "The directory to which the broker writes its usage (the spool). Empty: files usage-* in the first log directory. "
        "Odradek's own key."),
    ConfigKey("usage.spool.interval.ms", LONG, 60_000, Range(1000, 3_600_000), LOW, READ_ONLY, NOW,
        "How often in ms the broker writes its usage to the spool. Odradek's own key."),
    ConfigKey("usage.spool.max.bytes", LONG, 1 << 30, Range(0), LOW, READ_ONLY, NOW,
        "The most bytes that all files of the spool may have together; beyond that the oldest are deleted. 0 turns the spool "
        "off. Odradek's own key."),
)
