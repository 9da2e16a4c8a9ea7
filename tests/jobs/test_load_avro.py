"""Values in Avro with a schema registry: types of columns, resolution of schemas, errors of a value and of a registry."""

from __future__ import annotations

import json
import ssl
import struct
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trustme

from odradek.jobs.load.avro import AvroDecoder, column_type
from odradek.jobs.load.decoding import decoding_of
from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.files import write_batches
from odradek.jobs.load.registry import Registry, registry_of
from tests.jobs.schema_registry import SchemaRegistry, encoded


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """A record; a field is a type, or a pair of a type and a default."""
    parts = [
        {"name": key, "type": kind[0], "default": kind[1]} if isinstance(kind, tuple) else {"name": key, "type": kind}
        for key, kind in fields.items()
    ]
    return {"type": "record", "name": name, "fields": parts}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def long(logical: str) -> dict[str, str]:
    return {"type": "long", "logicalType": logical}


ORDER = record("Order", id="long", name="string")
TREE = record("Tree", label="string", left=["null", "Tree"])


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry("reader:secret").serving() as served:
        yield served


def decode(registry: SchemaRegistry, reader: Any, *values: bytes | None) -> tuple[list[Any], list[str | None]]:
    columns = AvroDecoder(registry.client, json.dumps(reader)).opened()
    decoded, errors = columns.decode(pa.array(values, pa.binary()))
    assert decoded.type == columns.type and len(decoded) == len(errors) == len(values)
    return decoded.to_pylist(), errors.to_pylist()


def test_columns_have_the_types_of_the_schema(registry: SchemaRegistry) -> None:
    schema = record(
        "All", b="boolean", i="int", l="long", f="float", d="double", y="bytes", s=["null", "string"],
        e={"type": "enum", "name": "E", "symbols": ["A", "B"]}, x={"type": "fixed", "name": "X", "size": 2},
        day={"type": "int", "logicalType": "date"}, ms=long("timestamp-millis"), us=long("timestamp-micros"),
        at={"type": "int", "logicalType": "time-millis"}, price=decimal(6, 2),
        many={"type": "array", "items": ["null", decimal(4, 1)]}, named={"type": "map", "values": "int"}, inner=ORDER,
        again="E",
    )  # fmt: skip
    value = {
        "b": True, "i": -1, "l": 1 << 40, "f": 0.5, "d": 0.1, "y": b"\xff\x00", "s": None, "e": "B", "x": b"ab",
        "day": date(2026, 11, 27), "ms": datetime(2026, 11, 27, 1, 2, 3, 4000, UTC),
        "us": datetime(2026, 11, 27, 1, 2, 3, 4005, UTC), "at": 5, "price": Decimal("-1234.50"), "many": [None, Decimal("2.5")],
        "named": {"k": 1}, "inner": {"id": 7, "name": "ü"}, "again": "A",
    }  # fmt: skip
    raw = {**value, "at": datetime.fromtimestamp(0.005, UTC).time()}
    data = encoded(registry.register("all", schema), schema, raw)
    (found,), errors = decode(registry, schema, data)
    assert errors == [None]
    assert found == {**value, "named": [("k", 1)]}


def test_values_are_resolved_to_the_reader_schema(registry: SchemaRegistry) -> None:
    old, new = record("Order", id="int", name="string", gone="string"), record("Order", id="long", more=["null", "int"])
    reader = record("Order", id="double", name=("string", "none"), flag=("bytes", "\u00ff"))
    first, second = registry.register("orders", old), registry.register("orders", new)
    found, errors = decode(
        registry,
        reader,
        encoded(first, old, {"id": 1, "name": "a", "gone": "x"}),
        None,
        encoded(second, new, {"id": 2, "more": 3}),
    )
    assert errors == [None] * 3
    assert found == [{"id": 1.0, "name": "a", "flag": b"\xff"}, None, {"id": 2.0, "name": "none", "flag": b"\xff"}]


def test_a_schema_is_asked_for_once(registry: SchemaRegistry) -> None:
    number = registry.register("once", ORDER)
    value = encoded(number, ORDER, {"id": 1, "name": "a"})
    for _ in range(3):
        decode(registry, ORDER, value, value)
    assert registry.asked.count(f"/schemas/ids/{number}") == 1


def test_schemas_that_refer_to_others(registry: SchemaRegistry) -> None:
    registry.register("person", {**record("Person", name="string"), "namespace": "x"})
    registry.register(
        "pair",
        {**record("Pair", one="Person", other="x.Person"), "namespace": "x"},
        references=[{"name": "x.Person", "subject": "person", "version": 1}],
    )
    outer = record("Outer", pair="x.Pair", third=["null", "x.Person"])
    number = registry.register("outer", outer, references=[{"name": "x.Pair", "subject": "pair", "version": 1}])
    decoding = decoding_of("avro", "outer", registry.client)
    columns = AvroDecoder(registry.client, decoding.schema).opened()
    value = struct.pack(">bI", 0, number) + b"\x02a\x02b\x02\x02c"
    decoded, errors = columns.decode(pa.array([value], pa.binary()))
    assert errors.to_pylist() == [None]
    assert decoded.to_pylist() == [{"pair": {"one": {"name": "a"}, "other": {"name": "b"}}, "third": {"name": "c"}}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: b"", "does not begin with a zero byte"),
        (lambda value: b"{}" + value, "does not begin with a zero byte"),
        (lambda value: b"\x00\x00\x00\x00", "does not begin with a zero byte"),
        (lambda value: value[:-1], "EOFError"),
        (lambda value: value + b"xy", "2 bytes follow the value"),
        (lambda value: b"\x00\x7f\xff\xff\xff", "has no schema 2147483647"),
        (lambda value: value[:5] + b"\x02\x02\xff", "UnicodeDecodeError"),
        (lambda value: value[:5] + b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "Error"),
        (lambda value: value[:5] + b"\xff" * 40, "Error"),
    ],
)
def test_a_value_that_cannot_be_decoded_says_why(registry: SchemaRegistry, change: Any, said: str) -> None:
    good = encoded(registry.register("good", ORDER), ORDER, {"id": 1, "name": "a"})
    found, errors = decode(registry, ORDER, good, change(good), good)
    assert found == [{"id": 1, "name": "a"}, None, {"id": 1, "name": "a"}]
    assert errors[0] is errors[2] is None and said in (errors[1] or "")


def test_schemas_of_writers_that_do_not_fit(registry: SchemaRegistry) -> None:
    def error_of(schema: Any, reader: Any, data: bytes = b"\x00" * 20, kind: str = "AVRO") -> str:
        number = registry.register("other", schema, kind)
        (found,), (error,) = decode(registry, reader, struct.pack(">bI", 0, number) + data)
        assert found is None and error is not None
        return error

    assert "of type PROTOBUF" in error_of({}, ORDER, kind="PROTOBUF")
    assert "is not a valid Avro schema" in error_of({"type": "nothing"}, ORDER)
    assert "SchemaResolutionError" in error_of(record("Order", id="long"), ORDER)
    empty = {"type": "array", "items": record("Empty", nothing="null")}
    assert "an array of values without bytes" in error_of(record("Order", id="long", name="string", more=empty), ORDER)
    left, right = record("T", at=long("timestamp-millis")), record("T", at=["null", long("timestamp-micros")])
    assert "'at' was written as timestamp-millis, and --schema has timestamp-micros" in error_of(left, right)
    left, right = record("D", at=decimal(5, 1)), record("D", at=decimal(5, 2))
    assert "scale 1, and --schema has decimal with scale 2" in error_of(left, right)


def test_a_number_without_a_unit_has_the_readers(registry: SchemaRegistry) -> None:
    number = registry.register("plain", record("T", at="long"))
    (found,), _ = decode(
        registry, record("T", at=long("timestamp-millis")), encoded(number, record("T", at="long"), {"at": 1})
    )
    assert found == {"at": datetime.fromtimestamp(0.001, UTC)}


def test_values_that_do_not_fit_into_the_column_are_told(registry: SchemaRegistry) -> None:
    schema = record("D", at=decimal(3, 0))
    number = registry.register("digits", schema)
    fits, over = (struct.pack(">bI", 0, number) + data for data in (b"\x04\x01\x00", b"\x06\x7f\xff\xff"))
    found, errors = decode(registry, schema, fits, over, fits)
    assert found == [{"at": 256}, None, {"at": 256}] and "does not fit into the column" in (errors[1] or "")


def test_values_that_are_nested_deeply_end_no_worker(registry: SchemaRegistry) -> None:
    number = registry.register("tree", TREE)
    nested = {"label": "a", "left": {"label": "b", "left": None}}
    deep = struct.pack(">bI", 0, number) + b"\x00\x02" * 200_000 + b"\x00\x00"
    found, errors = decode(registry, record("Tree", label="string"), encoded(number, TREE, nested), deep)
    assert found == [{"label": "a"}, None] and "nested more deeply than 500 levels" in (errors[1] or "")


def test_values_of_records_that_contain_themselves(registry: SchemaRegistry) -> None:
    """Each kind of type, as the walk over such values meets it."""
    schema = record(
        "All", b="boolean", i="int", f="float", d="double", y="bytes", s=["null", "string"], e="E1", x="X1",
        many={"type": "array", "items": "All"}, named={"type": "map", "values": ["null", "All"]}, last=["null", "All"],
    )  # fmt: skip
    for field, kind in ((6, {"type": "enum", "name": "E1", "symbols": ["A", "B"]}),
                        (7, {"type": "fixed", "name": "X1", "size": 2})):  # fmt: skip
        schema["fields"][field]["type"] = kind
    leaf: dict[str, Any] = {
        "b": True, "i": -(1 << 31), "f": 0.5, "d": 0.1, "y": b"\xff" * 200, "s": "ü", "e": "B", "x": b"ab",
        "many": [], "named": {}, "last": None,
    }  # fmt: skip
    value = {**leaf, "many": [leaf, leaf], "named": {"k": leaf, "n": None}, "last": {**leaf, "many": [leaf]}}
    data = encoded(registry.register("itself", schema), schema, value)
    kept = record("All", i="int", y="bytes")
    for cut in range(5, len(data)):
        found, errors = decode(registry, kept, data[:cut])
        assert found == [None] and errors[0] is not None, cut
    found, errors = decode(registry, kept, data, data + b"x")
    assert found == [{"i": -(1 << 31), "y": b"\xff" * 200}, None] and "1 bytes follow" in (errors[1] or "")
    tree = registry.register("tree", TREE)
    for body in (b"\x00\x04", b"\x00\x01", b"\x03", b"\x00" + b"\xff" * 12):
        found, errors = decode(registry, record("Tree", label="string"), struct.pack(">bI", 0, tree) + body)
        assert found == [None] and errors[0] is not None


@pytest.mark.parametrize("levels", [150, 250, 450, 900, 5000, 100_000])
def test_schemas_that_are_nested_deeply_end_no_task(registry: SchemaRegistry, levels: int) -> None:
    text = '{"type": "array", "items": ' * levels + '"int"' + "}" * levels
    schema = f'{{"type": "record", "name": "Order", "fields": [{{"name": "x", "type": {text}}}]}}'
    number = registry.register_text("nested", schema)
    found, errors = decode(registry, record("Order", id=("int", 1)), struct.pack(">bI", 0, number) + b"\x00")
    if levels == 150:
        assert (found, errors) == ([{"id": 1}], [None])
    else:
        assert found == [None] and ("nested more deeply" in (errors[0] or "") or "RecursionError" in (errors[0] or ""))


def test_schemas_that_are_nested_deeply_by_their_names(registry: SchemaRegistry) -> None:
    parts = [record("R0", a="int")] + [record(f"R{number}", a=f"R{number - 1}") for number in range(1, 400)]
    number = registry.register("names", parts)
    (found,), (error,) = decode(registry, record("R1", b=("int", 1)), struct.pack(">bI", 0, number) + b"\x00\x00")
    assert found is None and error is not None


def test_schemas_with_many_uses_of_a_record_are_quick(registry: SchemaRegistry) -> None:
    schema = record("R0", a="int")
    for number in range(1, 60):
        schema = record(f"R{number}", a=schema, b=f"R{number - 1}")
    began = time.process_time()
    found, errors = decode(registry, record("R59", a="int"), struct.pack(">bI", 0, registry.register("wide", schema)))
    assert found == [None] and errors[0] is not None
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (TREE, "'left' is a record that contains itself (Tree)"),
        (record("R", u=["int", "string"]), "'u' is a union of several types"),
        (record("R", n="null"), "'n' is null"),
        (record("R", i=record("Empty")), "'i' is a record that has no fields (Empty)"),
        ("null", "the value is null"),
        ({"type": "record"}, "the schema is not a valid Avro schema"),
    ],
)
def test_schemas_without_a_type_of_a_column_are_refused(
    registry: SchemaRegistry, tmp_path: Path, schema: Any, said: str
) -> None:
    file = tmp_path / "schema.avsc"
    file.write_text(json.dumps(schema))
    with pytest.raises(LoadError) as failed:
        decoding_of("avro", str(file), registry.client)
    assert said in str(failed.value) and str(failed.value).startswith(f"--schema {file}: ")


def test_the_schema_of_a_subject_stays_that_of_the_first_run(registry: SchemaRegistry) -> None:
    registry.register("kept-value", ORDER)
    first = decoding_of("avro", "kept-value", registry.client)
    registry.register("kept-value", record("Order", id="long", name="string", more=("int", 0)))
    assert decoding_of("avro", "kept-value", registry.client, first.text) == first
    changed = decoding_of("avro", "kept-value", registry.client)
    assert changed != first and len(column_type(json.loads(changed.schema))) == 3
    with pytest.raises(LoadError, match=r"is no file, and the schema registry .* has no such subject"):
        decoding_of("avro", "nowhere", registry.client)


def test_a_failure_of_the_registry_is_no_error_of_the_value(registry: SchemaRegistry) -> None:
    value = encoded(registry.register("fails", ORDER), ORDER, {"id": 1, "name": "a"})
    registry.failing = 503
    try:
        with pytest.raises(LoadError, match=r"answered 503 Service Unavailable to GET /schemas/ids/"):
            decode(registry, ORDER, value)
        with pytest.raises(LoadError, match="answered 503"):
            decoding_of("avro", "fails", registry.client)
        registry.failing = 404  # of another server than a registry
        with pytest.raises(LoadError, match="answered 404"):
            decode(registry, ORDER, value)
    finally:
        registry.failing = None
    assert decode(registry, ORDER, value) == ([{"id": 1, "name": "a"}], [None])
    with pytest.raises(LoadError, match=r"answered 401 Unauthorized to GET /schemas/types: Unauthorized"):
        decoding_of("avro", "fails", Registry(registry.url))
    with pytest.raises(LoadError, match=r"did not respond to GET /schemas/types: .*refused"):
        decoding_of("avro", "fails", Registry("http://127.0.0.1:1"))


def test_a_registry_with_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    own = authority.issue_cert("client.example")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    settings = {f"ssl.{name}.location": str(tmp_path / file) for name, file in
                (("ca", "ca.pem"), ("certificate", "cert.pem"), ("key", "key.pem"))}  # fmt: skip
    with SchemaRegistry().serving(context) as served:
        number = served.register("tls", ORDER)
        columns = AvroDecoder(registry_of(served.url, settings), json.dumps(ORDER)).opened()
        decoded, _ = columns.decode(pa.array([encoded(number, ORDER, {"id": 1, "name": "a"})], pa.binary()))
        assert decoded.to_pylist() == [{"id": 1, "name": "a"}]
        with pytest.raises(LoadError, match="its certificate is not accepted"):
            registry_of(served.url, {}).check()


@pytest.mark.parametrize(
    ("url", "settings", "said"),
    [
        ("registry:8081", {}, "--registry registry:8081: expected a URL"),
        ("http://registry:99999", {}, "expected a URL"),
        ("http://me:secret@registry", {}, "--registry http://...@registry: the login must not be in the URL"),
        (
            "http://r",
            {"basic.auth.user": "x"},
            "--registry-config: unknown setting basic.auth.user; expected basic.auth.user.info",
        ),
        ("http://r", {"basic.auth.user.info": "me"}, "is not of the form USER:PASSWORD"),
        ("http://r", {"ssl.ca.location": "/nowhere"}, "ssl.ca.location=/nowhere: "),
    ],
)
def test_wrong_options_of_a_registry_are_told(url: str, settings: dict[str, str], said: str) -> None:
    with pytest.raises(LoadError) as failed:
        registry_of(url, settings)
    assert said in str(failed.value) and "secret" not in str(failed.value)


@pytest.mark.parametrize(
    ("kind", "schema", "registry", "said"),
    [
        ("avro", "x", None, "--value avro needs --registry URL"),
        ("avro", None, Registry("http://127.0.0.1:1"), "--value avro needs --schema"),
        ("json", "id int", Registry("http://127.0.0.1:1"), "--registry needs --value avro, and --value is json"),
    ],
)
def test_options_that_contradict_each_other(
    kind: str, schema: str | None, registry: Registry | None, said: str
) -> None:
    with pytest.raises(LoadError, match=said):
        decoding_of(kind, schema, registry)


def test_a_task_writes_and_counts_them(registry: SchemaRegistry, tmp_path: Path) -> None:
    number = registry.register("written", ORDER)
    values = [encoded(number, ORDER, {"id": 1, "name": "a"}), None, b"no Avro"]
    batch = pa.RecordBatch.from_pydict({
        "topic": ["t"] * 3, "partition": pa.array([0] * 3, pa.int32()), "offset": pa.array(range(3), pa.int64()),
        "timestamp": pa.array([0] * 3, pa.timestamp("us", "UTC")), "value": pa.array(values, pa.binary()),
        "hash": pa.array([0] * 3, pa.int64()),
    })  # fmt: skip
    (written,) = write_batches(str(tmp_path), iter([batch]), AvroDecoder(registry.client, json.dumps(ORDER)))
    (row,) = written.to_pylist()
    assert (row["records"], row["undecoded"]) == (3, 1)
    rows = pq.read_table(tmp_path / row["file"]).to_pylist()
    assert [part["value"] for part in rows] == values
    assert [part["decoded"] for part in rows] == [{"id": 1, "name": "a"}, None, None]
    assert [part["decode_error"] is None for part in rows] == [True, True, False]
