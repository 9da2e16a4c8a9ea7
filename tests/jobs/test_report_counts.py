"""The counted columns of the report have one table; everything that lists them follows it."""

from __future__ import annotations

import ast
from pathlib import Path

from odradek.jobs.usage_report import aggregates, prometheus, spool, table_files
from odradek.jobs.usage_report.counts import COUNTS, TABLE
from odradek.metrics import spool_rows, usage_totals
from odradek.metrics.names import METRICS
from odradek.metrics.pages import UsageRow

PACKAGE = Path(aggregates.__file__).parent


def test_the_reader_of_the_spool_reads_every_count() -> None:
    fields = [(name, column) for name, column, _ in spool._KINDS["usage"]]
    assert fields[-len(TABLE) :] == [(count.spool, count.column) for count in TABLE]
    assert set(COUNTS) <= set(spool.FACTS.names)


def test_the_broker_writes_every_count_into_its_spool() -> None:
    row = spool_rows.usage(UsageRow(0, "", "", None, 0, 0, 0, *range(1, 9)), {})
    assert [name for name in row if name not in ("kind", *spool_rows.KEYS["usage"])] == [count.spool for count in TABLE]
    assert [count.spool for count in TABLE] == list(usage_totals.VALUES)
    values = UsageRow(0, "", "", None, 0, 0, 0, *range(1, 9))
    assert [row[count.spool] for count in TABLE] == [getattr(values, count.column) for count in TABLE]


def test_every_count_is_a_metric_of_the_broker_with_its_unit() -> None:
    read = {metric.column: metric for metric in prometheus.METRICS if metric.kind == "traffic"}
    assert list(read) == list(COUNTS)
    for count in TABLE:
        assert read[count.column].query.metric == f"odradek_usage_{count.metric}_total"
        assert read[count.column].query.metric in METRICS
        assert (read[count.column].scale == 1000) == ("_seconds" in count.metric) == count.column.endswith("_ms")


def test_the_tables_contain_every_count() -> None:
    assert table_files.SCHEMAS["traffic_hourly"].names[-len(COUNTS) :] == list(COUNTS)
    assert all(f", {name} bigint" in aggregates.SCHEMAS["traffic_hourly"] for name in COUNTS)


def test_the_document_lists_every_sum_of_the_summary() -> None:
    document = next((Path(__file__).parents[2] / "docs").rglob("usage-report.md")).read_text()
    row = next(line for line in document.splitlines() if line.startswith("| `traffic` |"))
    sums = [count.column for count in TABLE if count.in_summary]
    assert row.startswith("| `traffic` | " + ", ".join(f"`{name}`" for name in sums))


def counts_in(node: ast.AST) -> set[str]:
    texts = [element.value for element in ast.walk(node) if isinstance(element, ast.Constant)]
    return {word for text in texts if isinstance(text, str) for word in text.replace(",", " ").split()} & set(COUNTS)


def test_no_other_file_lists_the_counts() -> None:
    """A list of more than half of the names is a second table; code that needs one or two columns names them."""
    lists = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Call)
    found = {}
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        found[path.name] = any(
            len(counts_in(node)) > len(COUNTS) // 2 for node in ast.walk(tree) if isinstance(node, lists)
        )
    assert [name for name, listed in sorted(found.items()) if listed] == ["counts.py"]
