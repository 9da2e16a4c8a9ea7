"""Commands read the text of /metrics as it was written, whatever clients call themselves."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.health.doctor import _print
from odradek.cli.health.finding import Finding
from odradek.cli.health.metrics import judge_metrics
from odradek.cli.health.quotas import judge_quotas
from odradek.cli.health.sizes import judge_sizes
from odradek.cli.inspection.metrics_text import Sample, samples
from odradek.cli.inspection.throttled_clients import throttled_clients
from odradek.metrics.exposition import Family, Labels, pieces
from odradek.metrics.names import METRICS

ROOT = Path(__file__).parents[3]
FORGED = 'kafka_server_produce_throttle_time{user="x",client_id="y"} 9000000'
ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.lists(st.sampled_from([*ENDS, '"', "\\", "{", "}", ",", "=", " ", "n", FORGED, "# HELP"]), max_size=8).map(
        "".join
    ),
)


def text_of(name: str, *found: tuple[Labels, float]) -> str:
    """Return what a broker writes."""
    family = Family(METRICS[name], [("", labels, value) for labels, value in found])
    return b"".join(pieces([family], False)).decode()


@given(TEXTS, TEXTS, st.floats(allow_nan=False, allow_infinity=False))
def test_samples_are_what_was_written(client_id: str, topic: str, value: float) -> None:
    labels = Labels(client_id=client_id, topic=topic)
    text = text_of("odradek_usage_bytes_in_total", (labels, value), (Labels(topic="t"), 1))
    assert list(samples(text)) == [
        Sample("odradek_usage_bytes_in_total", {"client_id": client_id, "topic": topic}, value),
        Sample("odradek_usage_bytes_in_total", {"topic": "t"}, 1.0),
    ]


@pytest.mark.parametrize("end", ENDS)
def test_a_client_forges_no_sample(end: str) -> None:
    client_id = f"a{end}{FORGED}{end}odradek_topic_largest_batch_bytes 1e300{end}odradek_task_failed_runs many"
    text = text_of("kafka_server_produce_throttle_time", (Labels(user="u", client_id=client_id), 7000))
    [client] = throttled_clients(text)
    assert (client.user, client.client_id, client.remaining_ms) == ("u", client_id, 7000)
    assert not list(judge_metrics(text, 0.0)) and not list(judge_sizes(text, 0.0))
    [finding] = judge_quotas(text)
    assert finding.subject == f"client u/{client_id}"


@pytest.mark.parametrize(
    "rest",
    [" 1", " 1e999", " NaN", " many", '{topic="t" 1', '{topic="t"}1', '{topic="t"} 1 2', " ", "{} 1", '{a="b"} 2'],
)
def test_a_line_that_is_no_sample_or_lacks_a_label_breaks_no_command(rest: str) -> None:
    text = "".join(f"{name}{rest}\n" for name in METRICS)
    for judge in (lambda: judge_metrics(text, 0.0), lambda: judge_sizes(text, 0.0), lambda: judge_quotas(text)):
        assert all(finding.subject for finding in judge())
    throttled_clients(text)


def test_a_name_with_a_line_feed_forges_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    _print([Finding("warning", "group a\nerror  forged: finding", "w", "r", "r")])
    assert len(capsys.readouterr().out.split("\n")) == 4


SPLIT_TEXTS = {
    "api/connection_address.py": "/proc",
    "cli/container/variables.py": "/proc",
    "cli/health/bundle.py": "/proc",
    "cli/machine/demo.py": "files of the demonstration",
    "cli/health/local.py": "/proc",
    "cli/health/tasks.py": "systemctl",
    "cli/packaging/man.py": "texts of this project",
    "cli/usage/screen.py": "cells of tables, in which one_cell has escaped all ends of lines",
    "jobs/load/avro.py": "the first line of an error, for a person",
    "jobs/load/decoding.py": "the first line of an error, for a person",
    "jobs/load/delta_table.py": "bytes of JSON, which split at line feeds and carriage returns alone, and these are escaped",
    "jobs/load/job.py": "an error of Spark, for a person",
    "jobs/usage_report/cost.py": "files of the operator",
    "jobs/usage_report/job.py": "an error of Spark, for a person",
    "jobs/usage_report/session.py": "an error of Spark, for a person",
    "metrics/http_access.py": "bytes of a file of the operator",
    "metrics/processes.py": "/proc",
    "net/port_holder.py": "/proc",
    "processes/logs.py": "several_lines has escaped all ends of lines but line feeds",
    "protocol/schema.py": "texts of this project",
    "storage/checkpoints.py": "names of topics have letters, digits, dots, underscores and hyphens",
    "storage/log_directory.py": "a file of the operator",
    "testing/process_tree.py": "/proc",
}
"""Where `splitlines` is right, which also ends a line at characters that texts of clients may contain (U+0085), and why."""


def test_texts_of_clients_are_split_at_line_feeds_alone() -> None:
    package = ROOT / "broker/odradek"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\.splitlines\(", path.read_text("utf-8"))
    }
    assert found == set(SPLIT_TEXTS), 'may a client choose a part of the text? Then split("\\n")'
