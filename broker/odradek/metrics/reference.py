"""Writes ``docs/metrics.md`` from the table of names: ``python -m odradek.metrics.reference [FILE]``.

Run by people and by the test that the committed file is up to date; no process of the broker imports it.
"""

import sys

from odradek.config.reference import put
from odradek.metrics.names import METRICS, SECTIONS

_HEAD = """\
# Metrics

Generated from the table in `broker/odradek/metrics/names.py` by `python -m odradek.metrics.reference`; do not edit.

The reporter process serves them at `http://<metrics.listener>/metrics` (127.0.0.1:9404), as Prometheus' text or as
OpenMetrics, by the request's Accept header, compressed if it allows gzip. With them: `/healthz` (the reporter lives),
`/readyz` (200 when the broker serves and its coordinator is up, else 503 with the reason), and `/usage` (what
`odradek usage` shows, as JSON).

Names are kafka_exporter's, those of Kafka's own metrics as Strimzi's rules for the JMX exporter spell them, the standard
ones of a process, and our own under `odradek_`. A metric of type untyped is a gauge whose name ends as parts of a summary do.

- Counters do not go back while the broker runs, even if one of its processes dies. All of them began at 0 at
  `odradek_boot_time_seconds`.
- `metrics.max.topics` and `metrics.max.clients` limit the number of series. The largest topics and clients have series of
  their own; all others are counted as `other`. A topic or client keeps its series until it is removed, and a series that is
  added later begins at 0. Groups are limited by `metrics.max.clients` as well.
- The sum of an `odradek_usage_*` metric over all labels is the broker's total, without the counts of clients that were removed.
  Add up `requests` either with `topic=""`, which counts all requests, or over the topics, which count the requests that named
  them.
- The series of groups are absent while no coordinator runs or while it loads groups; `odradek_process_up` shows this.
- Readers (`odradek_reader_*`) are clients with open connections that fetched within `metrics.usage.idle.ms`, including members
  of groups. All connections with the same principal and client id are one reader. The series of a reader's partition end two
  minutes after its last connection that read the partition was closed, or stopped fetching it because the client was
  assigned other partitions. If the client connects again within two minutes, its series continue.
"""


def render() -> str:
    """The whole document."""
    lines = [_HEAD, f"{len(METRICS)} metrics.", ""]
    for title, section in SECTIONS:
        lines += [f"## {title}", "", "| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
        for metric in section:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |")
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Writes the document to the file named, or to standard output."""
    return put(render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
