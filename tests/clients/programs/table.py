"""The table of client programs: what runs each, which codecs it has, and which records it cannot express.

Read by the tests; the programs themselves run as processes of their own under `tests.clients.contract`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests import toolchains
from tests.clients.contract import CODECS, Record
from tests.clients.programs import kcat_records


def _no_null_header(record: Record) -> bool:
    return all(value is not None for _, value in record.headers)


def _key_or_value(record: Record) -> bool:
    return record.key is not None or record.value is not None


def _key_or_value_and_no_null_header(record: Record) -> bool:
    return _key_or_value(record) and _no_null_header(record)


def _any_record(record: Record) -> bool:
    return True


@dataclass(frozen=True)
class Program:
    """A client library under test.

    Args:
        name: what tests are called after.
        command: returns the command line, building or fetching what it needs; skips the test if a tool is missing.
        can_write: whether its producer can express a record at all.
        sets_timestamp: whether its producer takes a record's timestamp; otherwise it stamps the time of sending.
        codecs: the codecs it compresses with.
        idempotent_corpus: whether the corpus is written idempotently; not where each shape of record takes a call of
            its own, and the call a wait of half a second for a producer id from a coordinator that still loads.
    """

    name: str
    command: Callable[[], list[str]]
    can_write: Callable[[Record], bool] = _any_record
    sets_timestamp: bool = True
    codecs: tuple[str, ...] = CODECS
    idempotent_corpus: bool = True


def _python(module: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"tests.clients.programs.{module}"]


def _kcat() -> list[str]:
    toolchains.require_command("kcat", "kcat")
    return _python("kcat_records")()


PROGRAMS = (
    Program("confluent-kafka", _python("confluent_records")),
    Program("kafka-python", _python("kafka_python_records"), can_write=_key_or_value_and_no_null_header),
    Program("aiokafka", _python("aiokafka_records"), can_write=_key_or_value),
    Program("kcat", _kcat, can_write=kcat_records.can_write, sets_timestamp=False, idempotent_corpus=False),
    Program("java", lambda: toolchains.java_command("Records", classes=True)),
    Program("franz-go", lambda: [str(toolchains.go_program())]),
    # kafkajs measures a header's value before it looks whether it is null, and throws
    Program("kafkajs", lambda: ["node", str(toolchains.node_program())], can_write=_no_null_header),
)

BY_NAME = {program.name: program for program in PROGRAMS}
