"""Writes ``docs/reference/metrics.md`` from its tables: ``python -m odradek.metrics.reference FILE`` (``make tables``).

Run by developers and by the test that checks the committed file; no process of the broker imports this module.
"""

import sys

from odradek.config.reference import put
from odradek.metrics.names import METRICS, SECTIONS
from odradek.metrics.names.mirror import MIRROR

_HEAD = """\
# Metrics

Generated from the tables in `broker/odradek/metrics/names/` by `make tables`. Do not edit this page.

The reporter process serves the metrics at `http://<metrics.listener>/metrics` (default 127.0.0.1:9404). The Accept header of
the request selects Prometheus' text format or OpenMetrics; the response is compressed if the request accepts gzip. A query
`?name[]=NAME`, which may be repeated, selects series by their names. The process also serves `/healthz` (200 while the reporter
process works), `/readyz` (200 while the broker and its coordinator serve, else 503 with the reason), `/usage` (the data of
`odradek usage`, as JSON) and `/spool` (the files of the usage spool, for the
[report of a cluster](../operate/usage-report.md#a-cluster)). After its start, a broker of a cluster is not ready before it is
registered and all its replicas are in sync (except those whose partitions have no leader); a later loss of ZooKeeper or of
in-sync replicas does not make it unready.

The names come from kafka_exporter, from Strimzi's JMX exporter rules for Kafka's own metrics, from Prometheus' standard process
metrics, and from Odradek (`odradek_`). A metric of type untyped is a gauge whose name ends in `_count` or `_sum`.

- Counters never decrease while the broker runs, even if one of its processes dies. All of them began at 0 at
  `odradek_boot_time_seconds`.
- `metrics.max.topics` and `metrics.max.clients` limit the number of series. The largest topics and clients have separate
  series; all others are counted as `other`. A topic or client keeps its series until it is removed, and a series that is
  added later begins with the value 0. `metrics.max.clients` also limits the number of groups with series.
- Ids that clients choose are cut at 240 bytes, with `~` and a hash of the whole id at the end, so that they stay different.
  `metrics.max.bytes` limits the bytes of series with such labels; `odradek_metrics_left_out_series` is the number of series
  that a scrape omits. Each group has an equal part of a metric's bytes, and what a group does not use is for larger ones; of a
  group with more, the broker omits the partitions, and the sums of topics, with the smallest lag. A scrape computes the lag in
  at most 250,000 partitions, divided in the same way; of a group with more than its part it shows only the members.
- The sum of an `odradek_usage_*` metric over all labels is the broker's total, without the counts of clients that were removed.
  Add up `requests` either with `topic=""`, which counts all requests, or over the topics, which count the requests that named
  them; `errors` with `topic=""`, which counts the requests with an error.
- Sizes of records and batches by topic follow from counters. With TRAFFIC for `kafka_server_brokertopicmetrics` and `sum by
  (topic) (rate(...[5m]))` of each: `TRAFFIC_bytesin_total / TRAFFIC_messagesin_total` is the mean size of a record as stored
  (compressed), `TRAFFIC_bytesin_total / TRAFFIC_totalproducerequests_total` the mean size of what a Produce request has for a
  topic, `TRAFFIC_messagesin_total / TRAFFIC_totalproducerequests_total` its records, and
  `odradek_topic_largest_batch_bytes / odradek_topic_max_message_bytes` how near the largest batch came to the limit. The
  distribution of all batches is `odradek_produced_batch_bytes`. `odradek doctor -m` reports batches near the limit, refused
  batches, and small requests.
- The series of groups are absent while no coordinator runs or while it loads groups; `odradek_process_up` shows this.
- Readers (`odradek_reader_*`) are clients with open connections that fetched within `metrics.usage.idle.ms`, including members
  of groups. All connections with the same principal and client id are one reader. The series of a reader's partition end two
  minutes after its last connection that read the partition was closed, or stopped fetching it because the client was
  assigned other partitions. If the client connects again within two minutes, its series continue.
"""

_OF_MIRRORS = "Mirror (`odradek mirror run`, at `odradek.mirror.metrics.listener`)"


def render() -> str:
    """Return the whole document."""
    lines = [_HEAD, f"{len(METRICS)} metrics of brokers, {len(MIRROR)} of mirrors.", ""]
    for title, section in (*SECTIONS, (_OF_MIRRORS, MIRROR)):
        lines += [f"## {title}", "", "| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
        for metric in section:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |")
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write the document to the file given in `arguments`, or to standard output."""
    return put(render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
