"""The output of `consume` for a record, compared with that of Python's json module and string formatting."""

import base64
import json

import pytest
from click import UsageError
from hypothesis import given
from hypothesis import strategies as st

from odradek._ext.records.record_printing import RecordPrinter
from odradek.cli.framework.output import when
from odradek.cli.records.record_format import printer

TRICKY = st.sampled_from(
    [b"", b'"', b"\\", b"\x00\x1f\x7f\x80", "ä€😀".encode(), b"\xed\xa0\x80", b"\xc0\x80", b"\t\n\r\f\b/"]
)
BYTES = st.one_of(st.none(), TRICKY, st.binary(max_size=40), st.text(max_size=20).map(str.encode))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
RECORDS = st.tuples(
    st.integers(0, (1 << 63) - 1),
    st.integers(-1, 1 << 41),
    BYTES,
    BYTES,
    st.lists(st.tuples(NAMES, BYTES), max_size=3),
)


def as_json(data):
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


@given(st.lists(RECORDS, max_size=5), st.integers(0, 1 << 30))
def test_json_equals_that_of_pythons_json_module(records, partition):
    form = printer("json")
    form.set_partition("orders-ä", partition)
    expected = []
    for offset, timestamp, key, value, headers in records:
        form.add(offset, timestamp, key, value, headers)
        document = {"topic": "orders-ä", "partition": partition, "offset": offset, "timestamp": timestamp}
        document |= {
            "key": as_json(key),
            "value": as_json(value),
            "headers": [[name, as_json(part)] for name, part in headers],
        }
        expected.append(json.dumps(document, ensure_ascii=False).encode() + b"\n")
    assert form.take() == b"".join(expected)
    assert form.take() == b"" and form.size == 0


@given(RECORDS)
def test_a_template_is_filled_with_the_fields(record):
    offset, timestamp, key, value, headers = record
    form = printer("{{{topic}-{partition}@{offset} {timestamp} {time}}} {key}={value} [{headers}]\\n")
    form.set_partition("t", 7)
    form.add(offset, timestamp, key, value, headers)
    listed = b",".join(name.encode() + b"=" + (part or b"") for name, part in headers)
    begin = f"{{t-7@{offset} {timestamp} {when(timestamp)}}} ".encode()
    assert form.take() == begin + (key or b"") + b"=" + (value or b"") + b" [" + listed + b"]\n"


@pytest.mark.parametrize(
    ("form", "expected"),
    [("value", b"v\n\n"), ("key-value", b"k\tv\n\t\n"), ("raw", b"v")],
    ids=lambda value: str(value),
)
def test_each_named_format_prints_its_fields(form, expected):
    made = printer(form)
    made.set_partition("t", 0)
    made.add(0, 0, b"k", b"v", [])
    made.add(1, 0, None, None, None)
    assert made.take() == expected


@pytest.mark.parametrize("form", ["nothing", "{keys}", "{key", "{}"])
def test_an_invalid_format_is_a_wrong_command_line(form):
    with pytest.raises(UsageError, match=r"--format"):
        printer(form)


def test_a_time_is_formatted_once_for_consecutive_records():
    formatted = []

    def text(at):
        formatted.append(at)
        return str(at)

    form = RecordPrinter(["time", b" "], text)
    for at in (5, 5, 5, 6, 5):
        form.add(0, at, None, None, None)
    assert form.take() == b"5 5 5 6 5 "
    assert formatted == [-1, 5, 6, 5]
