"""kcat under the tests' contract: `python -m tests.clients.programs.kcat_records [BROKER_VERSION] write|read`.

With a broker version it speaks to the broker as to one of that version (0.8.2, 0.9.0, 0.10.0), without asking it.

kcat takes a partition, a set of headers and a way of telling null from empty by the command line, so that a run of
records that agree in these becomes one call of it. It does not tell the offsets it was acknowledged, and stamps records
by its own clock.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterable

from tests.clients.contract import Record, Settings, Unread, parse_input, print_offset

#: Bytes that no record of the tests contains: after a key, and after a record.
KEY_END = b"\x1e\x1f=\x1e"
RECORD_END = b"\x1e\x1d\n\x1e"

#: What kcat prints for a record: partition, offset, timestamp, lengths of key and value, headers, key and value.
_FORMAT = "%p %o %T %K %S %h\\x1e%k%s\\n"


def can_write(record: Record) -> bool:
    """Whether kcat can say `record`: its -Z makes empty keys and values null, all of a call's; in a header it knows no NUL."""
    if None in (record.key, record.value) and b"" in (record.key, record.value):
        return False
    return not any(key == "" or b"\0" in (value or b"") for key, value in record.headers)


def write(settings: Settings, lines: Iterable[str]) -> None:
    """Produce each run of records that one call of kcat can express."""
    records = [Record.from_line(line) for line in lines]
    for (topic, partition, codec, headers, nulls), run in itertools.groupby(records, _call_of):
        command = [
            "kcat", "-P", "-b", settings.bootstrap_servers, "-t", topic, "-p", str(partition), "-z", codec,
            "-K", _escaped(KEY_END), "-D", _escaped(RECORD_END),
            "-X", f"enable.idempotence={str(settings.idempotence).lower()}", "-X", "acks=all",
            "-X", f"linger.ms={settings.linger_ms}", "-X", f"batch.size={settings.batch_bytes}",
            "-X", f"max.in.flight={settings.in_flight}", *_options(),
        ]  # fmt: skip
        if nulls:
            command.append("-Z")
        arguments: list[str | bytes] = [*command]
        for key, value in headers:
            arguments += ["-H", key.encode() if value is None else key.encode() + b"=" + value]
        text = b"".join((record.key or b"") + KEY_END + (record.value or b"") + RECORD_END for record in run)
        subprocess.run(arguments, input=text, check=True, timeout=settings.timeout_s)
    for record in records:
        print_offset(record, None)


def _call_of(record: Record) -> tuple[str, int, str, tuple[tuple[str, bytes | None], ...], bool]:
    nulls = record.key is None or record.value is None
    return record.topic, record.partition, record.codec, record.headers, nulls


def read(settings: Settings, lines: Iterable[str]) -> None:
    """Read each span by its start and its number of records."""
    unread = Unread(lines)
    for span in unread.spans:
        if span.end > span.start:
            command = [
                "kcat", "-C", "-q", "-b", settings.bootstrap_servers, "-t", span.topic, "-p", str(span.partition),
                "-o", str(span.start), "-c", str(span.end - span.start), "-f", _FORMAT, *_options(),
            ]  # fmt: skip
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=settings.timeout_s)
            for record in _parse(span.topic, done.stdout):
                unread.take(record)
    if unread:
        raise ValueError("kcat ended before it had read all")


def _options() -> list[str]:
    options = ["-m", "60"]  # seconds until it must know the topic, not 5
    for version in sys.argv[1:-1]:
        options += ["-X", "api.version.request=false", "-X", f"broker.version.fallback={version}"]
    return options


def _parse(topic: str, text: bytes) -> Iterable[Record]:
    position = 0
    while position < len(text):
        end = text.index(b"\x1e", position)
        partition, offset, timestamp, key_bytes, value_bytes, headers = text[position:end].split(b" ", 5)
        key_end = end + 1 + max(int(key_bytes), 0)
        value_end = key_end + max(int(value_bytes), 0)
        yield Record(
            topic=topic,
            partition=int(partition),
            offset=int(offset),
            timestamp=int(timestamp),
            key=None if int(key_bytes) < 0 else text[end + 1 : key_end],
            value=None if int(value_bytes) < 0 else text[key_end:value_end],
            headers=tuple(_headers(headers)),
        )
        position = value_end + 1


def _headers(text: bytes) -> Iterable[tuple[str, bytes | None]]:
    for pair in text.split(b",") if text else []:
        key, _, value = pair.partition(b"=")
        yield key.decode(), None if value == b"NULL" else value


def _escaped(delimiter: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in delimiter)


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[-1]](*parse_input())
