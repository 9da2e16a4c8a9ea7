"""What a broker said in a conversation, as lines of text that can be compared and stored.

A line is a response; the request is kept beside it for people. Ids that a broker allocates are numbered in the order of their
appearance; addresses, messages and clock times are left out, and a time is only "now" or one that the test chose.
"""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import MODULES
from odradek.storage.batch import END_TXN_KEY, END_TXN_VALUE, RecordBatch, read_batches
from tests.transactions_against_kafka.transaction_talk import WHEN
from tests.wire import whole

UNCOMPARED = {
    "throttle_time_ms",
    "max_bytes",
    "min_bytes",
    "partition_max_bytes",
    "error_message",
    "batch_index_error_message",
    "log_append_time_ms",
    "host",
    "port",
    "node_id",
    "node_endpoints",
    "session_id",
    "current_leader",
    "replica_state",
    "replica_id",
    "diverging_epoch",
    "snapshot_id",
    "finalized_features_epoch",
    "timeout_ms",
    "client_software_name",
    "client_software_version",
}
TIMES = {"transaction_start_time_ms", "last_timestamp", "timestamp"}
IDS = {"producer_id", "v3_and_below_producer_id"}
SPEAKING = {"error_code", "partition_error_code", "producer_id", "records"}
"""Fields whose values show what they are."""
UNCOMPARED_OF_REQUESTS = {"high_watermark", "acks"}
UNORDERED = {"partitions", "unknown_state_filters"}
UNSAID = (None, [], "", False, b"", -1, bytes(16))
"""Values of fields that a request leaves out, as far as a reader is concerned."""
USUAL: dict[str, Any] = {
    "record_errors": [],
    "preferred_read_replica": -1,
    "log_start_offset": 0,
    "committed_leader_epoch": -1,
    "authorized_operations": -(1 << 31),
}
"""Values of responses that are not shown, because they are nearly everywhere the same."""
SECOND_BEST = {"log_start_offset"}
"""Fields that Kafka fills beside some refusals and not beside others."""


class Transcript:
    """The lines of one conversation.

    :param name: what its names begin with; shown as "~". :param topics: names of topics by id.
    """

    def __init__(self, name: str, topics: dict[bytes, str]) -> None:
        self.lines: list[str] = []
        self.asked: list[str] = []
        """The requests of the lines."""
        self._name = f"{name}-"
        self._topics = topics
        self._producers: dict[int, str] = {}
        self._members: dict[str, str] = {}
        self.coordinator_epochs = True
        """Whether they are shown: they begin with 0, and change with the starts of a broker."""
        self.first_epoch: int | None = None
        """Of the member of a group of KIP-848, whose epochs are shown in relation to it: Kafka 4.3 begins with 2."""

    def hear(self, api_key: int, version: int, request: Any, answer: Any) -> None:
        """A request and its response."""
        asked, answered = self._fields(request, version, asked=True), self._fields(answer, version)
        self.asked.append(f"version {version} {asked}".replace(self._name, "~"))
        self.lines.append(f"{MODULES[api_key]} {answered}".replace(self._name, "~"))

    def note(self, text: str) -> None:
        """A line of the test's own, which must be equal, too."""
        self.asked.append("")
        self.lines.append(f"# {text}".replace(self._name, "~"))

    def producer(self, producer_id: int) -> str:
        """The label of a producer id."""
        if producer_id < 0:
            return "none"
        return self._producers.setdefault(producer_id, f"p{len(self._producers)}")

    def know(self, *producer_ids: int) -> None:
        """Number producer ids before they appear, where the order of their appearance is a broker's own."""
        for producer_id in producer_ids:
            self.producer(producer_id)

    def _fields(self, value: Any, version: int, asked: bool = False) -> str:
        if not asked and "aborted_transactions" in dir(value):
            value = without_needless(value)
        refused = not asked and getattr(value, "error_code", 0)
        shown = []
        for field in value._structure.fields:
            name = field.attribute
            if version not in field.versions or name in UNCOMPARED or (refused and name in SECOND_BEST):
                continue
            content = getattr(value, name)
            if asked and (content in UNSAID or name in UNCOMPARED_OF_REQUESTS):
                continue
            if not asked and content == USUAL.get(name, USUAL):
                continue
            text = self._text(name, content, version, asked)
            shown.append(text if name in SPEAKING else f"{name}={text}")
        return "{" + " ".join(shown) + "}"

    def _text(self, name: str, value: Any, version: int, asked: bool) -> str:
        if name.endswith("error_code"):
            return ErrorCode(value).name
        if name in IDS:
            return self.producer(value)
        if name == "producer_id_filters":
            return "[" + " ".join(map(self.producer, value)) + "]"
        if name in TIMES:
            return str(value) if value < WHEN else "chosen" if value < WHEN + 1_000_000 else "now"
        if name == "member_id" and len(value) > 20:
            return self._members.setdefault(value, f"m{len(self._members)}")
        if name == "coordinator_epoch" and not self.coordinator_epochs:
            return "any"
        if name == "generation_id" and self.first_epoch is not None and value >= 0:
            return f"first{value - self.first_epoch:+}"
        if name == "records" and value is not None:
            return "[" + " ".join(map(self.batch, read_batches(whole(value)))) + "]"
        if isinstance(value, bytes | bytearray | memoryview):
            return self._topics.get(bytes(value), bytes(value).hex())
        if isinstance(value, list):
            parts = [self._text("", part, version, asked) for part in value]
            if name in UNORDERED or (parts and parts[0].startswith("{")):
                parts.sort()
            return "[" + " ".join(parts) + "]"
        if hasattr(value, "_structure"):
            return self._fields(value, version, asked)
        if isinstance(value, str) and len(value) > 200:
            return f"<{len(value)} characters>"
        return value if isinstance(value, str) and value and " " not in value else repr(value)

    def batch(self, batch: RecordBatch) -> str:
        """A batch: its offsets, its producer, and its marker or values."""
        kinds = ("transactional " if batch.is_transactional else "") + ("control " if batch.is_control else "")
        head = f"{kinds}{batch.base_offset}-{batch.last_offset} of {self.producer(batch.producer_id)}"
        head += f" epoch {batch.producer_epoch} sequence {batch.base_sequence}"
        if batch.partition_leader_epoch > 0:
            head += f" leader epoch {batch.partition_leader_epoch}"
        if not batch.is_control:
            return f"<{head}: {' '.join(shown(record.value) for record in batch.records())}>"
        (record,) = batch.records()
        assert record.key is not None and record.value is not None
        version, kind = END_TXN_KEY.unpack(record.key)
        value_version, coordinator_epoch = END_TXN_VALUE.unpack(record.value)
        name = ("abort", "commit")[kind]
        by = coordinator_epoch if self.coordinator_epochs else "any"
        return f"<{head}: {name} {version}.{value_version} of coordinator epoch {by}>"


def shown(value: bytes | None) -> str:
    """A record's value, or its size."""
    return "null" if value is None else f"{len(value)} bytes" if len(value) > 20 else value.decode()


def without_needless(partition: Any) -> Any:
    """What Fetch says of a partition, without aborted transactions that begin behind the records of the response.

    A broker may list more than a reader needs; Kafka does, as far as its index is coarse.
    """
    if partition.aborted_transactions is None:
        return partition
    end = max((batch.last_offset for batch in read_batches(whole(partition.records))), default=-1)
    partition.aborted_transactions = [one for one in partition.aborted_transactions if one.first_offset <= end]
    return partition
