"""The table of all metrics: name, type, labels and HELP text. `/metrics`, docs/reference/metrics.md and tests derive from it.

Constants, imported by any process. The names come from kafka_exporter, from Strimzi's JMX exporter rules for Kafka's own
metrics, from Prometheus' standard process metrics, and from Odradek (`odradek_`). Gauges whose names end in _count or _sum
have the type untyped, because checkers take names with these endings for parts of a summary.

A HELP text is read alone, for example in Grafana's metric browser: it names what is measured and its unit.
"""

from odradek.metrics.names.cluster import BROKER, CLUSTER, GROUPS
from odradek.metrics.names.processes import PROCESSES
from odradek.metrics.names.security import ACCESS, LOGINS, QUOTAS
from odradek.metrics.names.storage import PRODUCERS, STORAGE, TRANSACTIONS
from odradek.metrics.names.traffic import TRAFFIC
from odradek.metrics.names.usage import SPOOL, USAGE

SECTIONS = (
    ("Cluster (names of kafka_exporter)", CLUSTER),
    ("Groups and readers", GROUPS),
    ("Traffic and requests", TRAFFIC),
    ("Broker", BROKER),
    ("Processes", PROCESSES),
    ("Storage", STORAGE),
    ("State of idempotent producers", PRODUCERS),
    ("Transactions", TRANSACTIONS),
    ("TLS and logins", LOGINS),
    ("Access control", ACCESS),
    ("Quotas of clients", QUOTAS),
    ("Usage", USAGE),
    ("Usage spool", SPOOL),
)

METRICS = {metric.name: metric for _, section in SECTIONS for metric in section}
