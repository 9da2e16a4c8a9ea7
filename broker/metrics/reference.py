"""Writes ``docs/metrics.md`` from the table of names: ``python -m broker.metrics.reference [FILE]``.

Run by people and by the test that the committed file is up to date; no process of the broker imports it.
"""

import sys

from broker.config.reference import put
from broker.metrics.names import METRICS, SECTIONS

_HEAD = """\
# Metrics

Generated from the table in `broker/metrics/names.py` by `python -m broker.metrics.reference`; do not edit.

The reporter process serves them at `http://<metrics.listener>/metrics` (127.0.0.1:9404), as Prometheus' text or as
OpenMetrics, by the request's Accept header, compressed if it allows gzip. With them: `/healthz` (the reporter lives),
`/readyz` (200 when the broker serves and its coordinator is up, else 503 with the reason), and `/usage` (what
`odradek usage` shows, as JSON).

Names are kafka_exporter's, those of Kafka's own metrics as Strimzi's rules for the JMX exporter spell them, the standard
ones of a process, and our own under `odradek_`. A metric of type untyped is a gauge whose name ends as parts of a summary do.

- Counters do not go back while the broker lives, whichever of its processes dies: `odradek_boot_time_seconds` says since
  when.
- `metrics.max.topics` and `metrics.max.clients` bound the series. The largest have names, the rest is `other`; who has a
  name keeps it until it is gone, and who gets one late begins at 0 under it. Groups are bounded by `metrics.max.clients`
  as well.
- Sums of `odradek_usage_*` over all labels are the broker's totals, less what clients did that have gone since. Add up
  `requests` either with `topic=""`, which are all requests, or with topics, which are those that named the topic.
- Series of groups are absent while the coordinator is away or loads groups; `odradek_process_up` says so.
- Readers (`odradek_reader_*`) are clients with open connections that fetched within `metrics.usage.idle.ms`, members of groups
  included. All connections with the same principal and client id are one reader. The series of a partition end two minutes
  after the last connection that read it was closed, or fetches it no longer because the client was assigned other partitions.
  A client that connects again within two minutes goes on with its series.
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
