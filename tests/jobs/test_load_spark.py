"""``odradek load`` with Spark and a broker: every committed record once, as another client reads it; what `verify` finds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

from odradek.cli.main import main
from odradek.clients.cluster import Cluster
from odradek.clients.topics import delete_records
from odradek.jobs.load import frames
from odradek.jobs.load.commit_log import VersionDirectory
from odradek.jobs.load.summary import summary_of
from odradek.jobs.usage_report.table_files import SCHEMAS
from odradek.jobs.usage_report.times import HOUR_MS
from odradek.testing import Broker
from tests import toolchains
from tests.clients.secured import PASSWORD, secured_broker
from tests.jobs.killed_loads import KilledLoads
from tests.jobs.loaded_topics import in_files, in_table, in_topic, send, send_transactions
from tests.jobs.schema_registry import SchemaRegistry, encoded
from tests.spark_sessions import local_session
from tests.wire import Record, Wire, build_batch

pytestmark = [pytest.mark.xdist_group("load"), pytest.mark.timeout(900), pytest.mark.java]


@pytest.fixture(scope="module")
def jars() -> Path:
    return toolchains.spark_kafka_jars()


@pytest.fixture(scope="module")
def spark(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of one JVM, which the command uses instead of starting its own."""
    session = local_session(
        {
            "spark.jars": ",".join(map(str, jars.glob("*.jar"))),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(tmp_path_factory.mktemp("events")),
        }
    )
    yield session
    session.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    forever = {"log.retention.ms": "-1"}  # some records have timestamps of years ago
    with Broker(forever, {"orders": 3, "pay": 1}, directory=tmp_path / "broker") as started:
        yield started


@pytest.fixture(scope="module")
def empty_broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 3, "pay": 1}) as started:
        yield started


class Command:
    """Runs `odradek load` in this process, with its session."""

    def __init__(self, servers: str, jars: Path, out: Path) -> None:
        self.out = out
        self.main = out / "version=main"
        self._options = ["-b", servers, "--connector-jars", str(jars)]

    def __call__(self, name: str, *arguments: object, status: int = 0) -> str:
        """Run a subcommand; return its output. Without --reader it reads with Spark's connector."""
        words = ["load", name, *map(str, arguments), "--out", str(self.out)]
        options = self._options[:2] if "python" in arguments else self._options
        done = CliRunner().invoke(main, [*words, *([] if name in ("versions", "merge") else options)])
        assert done.exit_code == status, f"{done.output}\n{done.exception!r}"
        return done.output


@pytest.fixture
def load(broker: Broker, spark: Any, jars: Path, tmp_path: Path) -> Command:
    return Command(broker.bootstrap_servers, jars, tmp_path / "out")


def test_every_committed_record_is_loaded_once(load: Command, broker: Broker) -> None:
    servers = broker.bootstrap_servers
    send(servers, "orders", 0, 700, **{"compression.type": "zstd"})
    send_transactions(servers, "pay", 0, 45)
    assert "745 records in 1 commit:" in load("run", "orders", "pay")
    send_transactions(servers, "orders", 1000, 30)
    send(servers, "orders", 2000, 100)
    assert "130 records" in load("run", "orders", "pay", "--max-offsets", 100)
    wanted = in_topic(servers, "orders", 3) + in_topic(servers, "pay", 1)
    assert in_files(load.main) == sorted(wanted) and len(wanted) == 875
    assert "small files were merged" in load("merge")
    assert in_files(load.main) == sorted(wanted)
    assert "875 records of 4 partitions agree with its commits and the broker" in load("verify")
    # the other reader: the same records with the same checksums
    load("run", "orders", "pay", "--reader", "python", "--version", "other", "--min-partitions", 5)
    assert in_files(load.out / "version=other") == sorted(wanted)
    both = [summary_of(VersionDirectory(load.out, name)).partitions for name in ("main", "other")]
    assert both[0] == both[1]
    assert "875" in load("versions") and "other" in load("versions", "--json")


def test_a_delta_table_has_every_committed_record_once(load: Command, broker: Broker) -> None:
    servers = broker.bootstrap_servers
    send(servers, "orders", 0, 300)
    send_transactions(servers, "pay", 0, 45)
    values = ("--value", "json", "--schema", "id bigint, at timestamp, some array<struct<a: int>>")
    assert "345 records in 1 commit:" in load("run", "orders", "pay", "--format", "delta", *values)
    send(servers, "orders", 300, 100)
    assert "100 records" in load("run", "orders", "pay", *values, "--max-offsets", 60)
    wanted = in_topic(servers, "orders", 3) + in_topic(servers, "pay", 1)
    assert in_table(load.main) == sorted(wanted) and len(wanted) == 445
    assert "begun with --format delta, not parquet" in load("run", "pay", *values, "--format", "parquet", status=1)
    assert "small files were merged" in load("merge")
    table = DeltaTable(load.main)
    assert in_table(load.main) == sorted(wanted) and len(table.file_uris()) == 2
    table.optimize.compact()
    agree = "445 records of 4 partitions agree with its commits and the broker"
    assert agree in load("verify")
    table.optimize.z_order(["offset"])
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert agree in load("verify")
    listed = load("versions", "--json")
    assert '"records": 445' in listed and '"format": "delta"' in listed
    table.delete("topic = 'orders' and partition = 1 and offset in (3, 5)")
    said = load("verify", status=1)
    assert "orders-1: 2 records: only the broker has offsets 3, 5\n" in said and "orders-0" not in said
    write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append")
    assert "1 records are in the files more than once" in load("verify", "--files-only", status=1)


def test_a_run_that_is_killed_is_completed_by_the_next_one(
    load: Command, broker: Broker, jars: Path, tmp_path: Path
) -> None:
    loads = KilledLoads(broker, jars, tmp_path, 16, 1)
    assert loads.out == load.out
    loads.round("a commit is written")
    assert loads.killed == {"a commit is written": 1}
    load("run", "orders", "pay", "--max-offsets", 150)
    loads.compare()


def rows_of(version: Path) -> list[str]:
    """The rows of all files as texts; timestamps as numbers, because Python has no year 10000."""
    tables = [pq.read_table(path, partitioning=None) for path in version.glob("topic=*/*/*.parquet")]
    whole = pa.concat_tables(tables)
    at = whole.schema.get_field_index("timestamp")
    return [repr(row) for row in whole.set_column(at, "timestamp", whole["timestamp"].cast(pa.int64())).to_pylist()]


def test_timestamps_and_headers_of_any_kind(load: Command, broker: Broker) -> None:
    config = ("-c", "message.timestamp.after.max.ms=9223372036854775807")
    for topic in ("dated", "named", "late"):
        created = CliRunner().invoke(main, ["topic", "create", topic, *config, "-b", broker.bootstrap_servers])
        assert created.exit_code == 0, created.output
    times = [
        1_767_225_599_999,
        1_767_225_600_000,
        1,
        253_402_300_800_000,
        -1,
    ]  # 2025-12-31, 2026-01-01, 1970, year 10000, 1969
    headers = ((b"\xff\xfe", b"x"), (b"a\x00b", b""), (b"", None), (b"n" * 100_000, b"y" * 100_000))
    many = tuple((f"h{number}".encode(), b"") for number in range(100_000))
    with Wire.to(broker) as wire:
        records = [("dated", Record(None, b"x", at_ms)) for at_ms in times]
        records += [("named", Record(b"", b"", 1, headers=some)) for some in (headers, many)]
        for topic, record in (*records, ("late", Record(None, None, (1 << 63) - 1))):
            assert wire.produce(topic, build_batch([record])).error_code == 0
    said = load("run", "late", "--version", "late", status=1)
    assert "a record has a timestamp that Spark's Kafka connector cannot read" in said and "use --reader python" in said
    load("run", "dated", "named")
    names = sorted(path.name for path in (load.main / "topic=dated").iterdir())
    dates = ["1969-12-31", "1970-01-01", "2025-12-31", "2026-01-01", "__HIVE_DEFAULT_PARTITION__"]
    assert names == [f"date={date}" for date in dates]
    table = pa.concat_tables(
        pq.read_table(path, partitioning=None) for path in load.main.glob("topic=dated/*/*.parquet")
    )
    assert sorted(table["timestamp"].cast(pa.int64()).to_pylist()) == sorted(at_ms * 1000 for at_ms in times)
    (path,) = load.main.glob("topic=named/*/*.parquet")
    first, second = pq.read_table(path, partitioning=None)["headers"].to_pylist()
    assert [header["key"] for header in first] == ["\ufffd\ufffd", "a\x00b", "", "n" * 100_000] and len(
        second
    ) == 100_000
    load("verify")
    load("run", "dated", "named", "late", "--reader", "python", "--version", "python")
    mains, others = rows_of(load.main), rows_of(load.out / "version=python")
    assert len(others) == len(mains) + 1 and not set(mains) - set(others)
    load("verify", "--version", "python", "--reader", "python")


def test_a_period_is_loaded_into_a_version_of_its_own(load: Command, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(100):
        producer.produce("orders", partition=number % 3, value=f"{number}", timestamp=1_700_000_000_000 + number * 1000)
    assert producer.flush(30) == 0
    load("run", "orders")
    before = {path: path.stat().st_mtime_ns for path in load.main.rglob("*")}
    period = ("--from", 1_700_000_020_000, "--to", 1_700_000_050_000, "--version", "again")
    for loaded in (30, 0):
        assert f"{loaded} records" in load("run", "orders", *period)
    values = sorted(int(record.value or b"") for record in in_files(load.out / "version=again"))
    assert values == list(range(20, 50))
    assert {path: path.stat().st_mtime_ns for path in load.main.rglob("*")} == before
    assert "begun with --from" in load("run", "orders", "--version", "again", status=1)
    load("verify", "--version", "again")


def test_values_are_decoded_and_those_that_cannot_be_are_kept(load: Command, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    values = [b'{"id": 1, "tags": ["a", "b"]}', b"{", None, b'{"id": "x"}', b'{"id": 5, "more": 1}', b"\xff", b"null"]
    values += [b'{"id": 6}{"id": 7}', b'{"id": 6},{"id": 7}', b'{"id": 6}] 7', b' {"id": 8} \n']
    hostile = [
        b"[" * 100_000,
        b'{"x":' * 50_000,
        b'{"id": NaN}',
        b'{"id": 1e400}',
        b'{"id": ' + b"9" * 5000 + b"}",
        b"",
    ]
    hostile += [
        b'{"' + b"k" * 60_000 + b'": 1}',
        b'{"tags": ' + b"1" * 900_000 + b"}",
        b'{"id": 1}\x00',
        b"\xef\xbb\xbf{}",
    ]
    values += [*hostile, b'{"id": 1, "id": 9}']
    for value in values:
        producer.produce("pay", value=value)
    assert producer.flush(30) == 0
    said = load("run", "pay", "--value", "json", "--schema", "id bigit", status=1)
    assert "--schema 'id bigit': Spark does not accept it" in said
    options = ("--value", "json", "--schema", "id bigint, tags array<string>")
    assert "17 values could not be decoded" in load("run", "pay", *options)
    (file,) = load.main.glob("topic=pay/*/*.parquet")
    rows = pq.read_table(file, partitioning=None).to_pylist()
    assert [row["value"] for row in rows] == values
    assert [row["decoded"] for row in rows] == [
        {"id": 1, "tags": ["a", "b"]}, None, None, None, {"id": 5, "tags": None}, None, None,
        None, None, None, {"id": 8, "tags": None}, *[None] * len(hostile), {"id": 9, "tags": None},
    ]  # fmt: skip
    failed = [offset for offset, row in enumerate(rows) if row["decode_error"] is not None]
    assert failed == [1, 3, 5, 6, 7, 8, 9, *range(11, 21)]
    load("verify")
    assert "begun with --value json" in load("run", "pay", status=1)


def test_values_in_avro_are_decoded_with_a_registry(load: Command, broker: Broker, spark: Any, tmp_path: Path) -> None:
    def schema(*fields: str) -> dict[str, Any]:
        return {
            "type": "record",
            "name": "Pay",
            "fields": [{"name": name, "type": "long", "default": 7} for name in fields],
        }

    def pay(*values: bytes | None) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for value in values:
            producer.produce("pay", value=value)
        assert producer.flush(30) == 0

    (tmp_path / "registry.properties").write_text("basic.auth.user.info=me:secret\n")
    with SchemaRegistry("me:secret").serving() as registry:
        options = ("--value", "avro", "--schema", "pay-value", "--registry", registry.url)
        assert "answered 401 Unauthorized" in load("run", "pay", *options, status=1) and not load.out.exists()
        options += ("--registry-config", str(tmp_path / "registry.properties"))
        assert "has no such subject" in load("run", "pay", *options, status=1) and not load.out.exists()
        first = registry.register("pay-value", schema("id"))
        second = registry.register("pay-value", schema("id", "more"))
        values = [
            encoded(first, schema("id"), {"id": 1}),
            None,
            b"{}",
            encoded(second, schema("id", "more"), {"id": 2, "more": 3}),
        ]
        pay(*values)
        assert "1 values could not be decoded" in load("run", "pay", *options)
        third = registry.register("pay-value", schema("id", "other"))
        pay(encoded(third, schema("id", "other"), {"id": 4, "other": 5}))
        registry.failing, registry.failing_path = 503, f"/schemas/ids/{third}"
        said = load("run", "pay", *options, status=1)
        assert (
            f"Spark failed: the schema registry {registry.url} answered 503" in said and len(in_files(load.main)) == 4
        )
        registry.failing = None
        assert "1 record in 1 commit" in load("run", "pay", *options)  # with the schema of the first run
    rows = spark.read.parquet(str(load.main)).select("offset", "decoded.*", "decode_error").orderBy("offset").collect()
    assert [(row["id"], row["more"]) for row in rows] == [(1, 7), (None, None), (None, None), (2, 3), (4, 7)]
    assert [row["decode_error"] is None for row in rows] == [True, True, False, True, True]
    assert [record.value for record in in_files(load.main)][:4] == values
    assert "small files were merged" in load("merge")
    assert "5 records" in load("verify")


def test_topics_that_match_a_pattern_are_found_at_each_run(load: Command, broker: Broker) -> None:
    servers = broker.bootstrap_servers
    in_topic(servers, "pay", 1)

    def change(*words: str) -> None:
        assert CliRunner().invoke(main, ["topic", *words, "-b", servers]).exit_code == 0

    change("create", "shop.a")
    for topic in ("shop.a", "pay", "orders"):
        send(servers, topic, 0, 10)
    assert "matches the whole name of no topic" in load("run", "--topics-matching", "shop", status=1)
    assert "10 records" in load("run", "--topics-matching", "shop[.].*")
    change("create", "shop.b")
    send(servers, "shop.b", 0, 20)
    assert "30 records" in load("run", "pay", "--topics-matching", "shop[.].*")
    assert {record.topic for record in in_files(load.main)} == {"pay", "shop.a", "shop.b"}
    change("delete", "shop.b", "--yes")
    assert "topic 'shop.b' was deleted" in load("run", "--topics-matching", "shop[.].*", status=3)
    assert "shop.b" not in load("run", "--topics-matching", "shop[.]a|pay")
    offered = load("run", "--topics-matching", ".*", "--dry-run", "--version", "all")
    assert "orders-0" in offered and "__" not in offered


def test_verify_names_what_differs(load: Command, broker: Broker) -> None:
    send(broker.bootstrap_servers, "pay", 1, 20)
    load("run", "pay")
    (file,) = load.main.glob("topic=pay/*/*.parquet")
    table = pq.read_table(file, partitioning=None)
    values = table["value"].to_pylist()
    values[3] = b"other"
    column = table.schema.get_field_index("value")
    pq.write_table(table.set_column(column, "value", pa.array(values, pa.binary())).slice(0, 18), file)
    file.with_name("mine.parquet").write_bytes(file.read_bytes())
    said = load("verify", status=1)
    assert "mine.parquet is in no commit" in said
    assert "pay-0: the files have 18 records at offsets 0 to 17, the commits 20 records at offsets 0 to 19" in said
    assert "pay-0: 1 records: differ at offsets 3\n" in said
    assert "pay-0: 2 records: only the broker has offsets 18, 19\n" in said
    assert "differences" in load("verify", "--files-only", status=1)


def test_verify_compares_with_the_usage_report(load: Command, broker: Broker, tmp_path: Path) -> None:
    begin = 1_700_000_000_000 // HOUR_MS * HOUR_MS
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(40):  # ten records an hour; the first and the last hour may not be complete
        for topic in ("orders", "pay"):
            producer.produce(topic, value=f"{number}", timestamp=begin + number * HOUR_MS // 10)
    assert producer.flush(30) == 0
    load("run", "orders", "pay")
    report = tmp_path / "report"
    hours = [datetime.fromtimestamp((begin + number * HOUR_MS) / 1000, UTC) for number in range(4)]
    traffic: list[dict[str, Any]] = []
    for topic, counted in (("orders", 11), ("pay", 10)):
        traffic += [{"hour": hour, "topic": topic, "api": "Produce", "records_in": counted} for hour in hours]
        traffic += [{"hour": hour, "topic": topic, "api": "Fetch", "records_out": 99} for hour in hours]
    covered = [{"hour": hour, "source": "spool", "covered_ms": HOUR_MS} for hour in hours]
    for name, rows in (("traffic_hourly", traffic), ("coverage_hourly", covered)):
        directory = report / "tables" / name / "day=2023-11-14"
        directory.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS[name]), directory / "part-0.parquet")
    said = load("verify", "--files-only", "--usage", report)
    assert "pay: 20 records loaded in 2 whole hours, 20 counted by the broker: equal\n" in said
    assert "orders: 20 records loaded in 2 whole hours, 22 counted by the broker: -2\n" in said
    assert "has no tables/traffic_hourly" in load("verify", "--usage", tmp_path, status=1)


def test_deleted_records_and_a_new_topic_of_the_same_name_end_with_status_3(load: Command, broker: Broker) -> None:
    send(broker.bootstrap_servers, "pay", 0, 10)
    load("run", "pay")
    send(broker.bootstrap_servers, "pay", 10, 20)
    with Cluster(broker.bootstrap_servers) as cluster:
        delete_records(cluster, {("pay", 0): 17})
    assert "pay-0: offsets 10 to 16 were deleted before they were loaded" in load("run", "pay", status=3)
    assert [record.offset for record in in_files(load.main)] == [*range(10), *range(17, 30)]
    assert "pay-0: the broker has deleted offsets 0 to 9" in load("verify")
    for arguments in (("topic", "delete", "pay", "--yes"), ("topic", "create", "pay")):
        assert CliRunner().invoke(main, [*arguments, "-b", broker.bootstrap_servers]).exit_code == 0
    send(broker.bootstrap_servers, "pay", 0, 50)
    said = load("run", "pay", status=3)
    assert "topic 'pay' was deleted and created again" in said and len(in_files(load.main)) == 23
    assert "50 records" in load("run", "pay", "--version", "second")


def test_a_directory_that_no_task_can_write_to_ends_the_run_at_once(
    load: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a failed task, because Spark would repeat it; the tasks leave most of their records unread."""
    send(broker.bootstrap_servers, "pay", 0, 4000)
    original = frames.write

    def write(frame: Any, staging: Path, decoding: Any) -> Any:
        staging.rename(staging.with_name("away"))
        try:
            return original(frame, staging, decoding)
        finally:
            staging.with_name("away").rename(staging)

    monkeypatch.setattr(frames, "write", write)
    said = load("run", "pay", status=1)
    assert "odradek: a task cannot write its files: " in said and ": No such file or directory\n" in said
    assert "Spark failed" not in said and not list((load.main / "_odradek_load/staging").iterdir())
    monkeypatch.undo()
    load("run", "pay")
    assert len(in_files(load.main)) == 4000


def test_a_topic_that_is_created_again_while_it_is_read_is_not_committed(
    load: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = broker.bootstrap_servers
    send(servers, "orders", 0, 30)
    send(servers, "pay", 0, 10)
    original = frames.write

    def write(frame: Any, staging: Path, decoding: Any) -> Any:
        rows = original(frame, staging, decoding)
        for words in (("delete", "pay", "--yes"), ("create", "pay")):
            assert CliRunner().invoke(main, ["topic", *words, "-b", servers]).exit_code == 0
        send(servers, "pay", 100, 10)
        return rows

    monkeypatch.setattr(frames, "write", write)
    said = load("run", "orders", "pay", status=3)
    assert "topic 'pay' was deleted and created again while it was read" in said and "30 records in 1 commit" in said
    monkeypatch.undo()
    assert "10 records" in load("run", "orders", "pay")
    assert in_files(load.main) == in_topic(servers, "orders", 3) + in_topic(servers, "pay", 1)


def secrets_in(*directories: Path, secret: bytes) -> list[Path]:
    """The files that have a secret."""
    files = (path for directory in directories for path in directory.rglob("*") if path.is_file())
    return [path for path in files if secret in path.read_bytes()]


def test_a_load_over_sasl_ssl(spark: Any, jars: Path, tmp_path: Path) -> None:
    with secured_broker(tmp_path, secured=2) as secured:
        send(secured.servers, "secured", 0, 100, **secured.librdkafka_settings())
        config = secured.java_properties(tmp_path / "client.properties")
        load = Command(secured.servers, jars, tmp_path / "out")
        load("run", "secured", "--command-config", config)
        load("run", "secured", "--command-config", config, "--reader", "python", "--version", "python")
        wanted = in_topic(secured.servers, "secured", 2, **secured.librdkafka_settings())
        assert in_files(load.main) == in_files(load.out / "version=python") == wanted
        load("verify", "--command-config", config)
        # the log of events is what Spark's web pages show
        events = Path(spark.conf.get("spark.eventLog.dir").removeprefix("file:"))
        assert secrets_in(events, load.out, secret=b"odradek_topics") and not secrets_in(
            events, load.out, secret=PASSWORD.encode()
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "topic 'nowhere' does not exist; `odradek topic list` shows all topics"),
        (("pay", "--from", "yesterday"), "--from: 'yesterday' is not a time"),
        (("pay", "--from", "-1h", "--to", "-2h"), "expected a period that ends after it begins"),
        (("pay", "--to", "2999-01-01"), "--to 2999-01-01 is in the future"),
        (("pay", "--from", "99999999999999999"), "is not a time between 1970 and 9999"),
        (("pay", "--from", "-1h"), "name it with --version NAME"),
        (("pay", "--version", "../x"), "--version '../x': expected"),
        (("pay", "--connector-jars", "/nowhere"), "--connector-jars /nowhere: is no directory with spark-sql-kafka"),
        (("pay", "-b", "127.0.0.1:1"), "cannot connect to 127.0.0.1:1"),
        (("pay", "--reader", "python"), "--connector-jars /nowhere is for --reader kafka, and --reader is python"),
        (("pa/y",), "topic 'pa/y' is no name of a topic: expected 1 to 249 letters"),
        (("pay", "--out", "/srv/lo[a]ds"), "--out '/srv/lo[a]ds': expected a name without * ? [ ] { }"),
        (("pay", "--out", "s3://bucket/x"), "--out s3://bucket/x: expected a directory"),
        (("pay", "--value", "json"), "--value json needs --schema"),
        (("pay", "--schema", "id int"), "--schema needs --value json or avro"),
        (("pay", "--value", "avro", "--schema", "x"), "--value avro needs --registry URL"),
        (("pay", "--registry-config", "/nowhere"), "--registry-config needs --registry URL"),
        ((), "no topic is named: name topics, or use --topics-matching REGEX"),
        (("--topics-matching", "a("), "--topics-matching 'a(': expected a regular expression: missing )"),
        (("--topics-matching", "ord"), "--topics-matching 'ord': matches the whole name of no topic of cluster"),
        (("pay", "--command-config", "/nowhere"), "cannot read the client configuration /nowhere"),
    ],
)
def test_bad_input_is_one_line_and_creates_nothing(
    empty_broker: Broker, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    options = ["-b", empty_broker.bootstrap_servers, "--out", str(tmp_path / "out"), "--connector-jars", "/nowhere"]
    done = CliRunner().invoke(main, ["load", "run", *options, *arguments])
    assert done.exit_code == 1 and said in done.output, done.output
    assert done.output.count("\n") == 1 and not (tmp_path / "out").exists()
