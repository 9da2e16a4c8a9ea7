"""Metrics, health and usage.

Rows of the table of keys: type, default and range as in Kafka 4.3, or 3.9 for what 4.x dropped.
"""

from broker.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    NONE,
    NONE_YET,
    READ_ONLY,
    STRING,
    ConfigKey,
    OneOf,
    Pattern,
    Range,
)

ADDRESS = Pattern(r"|(\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]*):[0-9]{1,5}", "host:port, or empty")

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
    ConfigKey("metrics.listener", STRING, "", ADDRESS, MEDIUM, READ_ONLY, NONE_YET,
        "Our own. Where /metrics and the health checks are served over HTTP, host:port; empty turns them off."),
)
