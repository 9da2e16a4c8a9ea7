"""What a lane notes with a position, and whether the position belongs to the source as it is now.

Pure functions: used by the threads of the lanes, and by `odradek mirror status`.
"""

import json
from collections.abc import Sequence

from odradek.mirror.routes import UNKNOWN_TOPIC_ID
from odradek.topic_partition import TopicPartition

LONGEST_REASON = 500
"""Characters of a reason that are noted: brokers limit the metadata of a position to 4096 bytes by default."""


def noted(metadata: str) -> dict[str, object]:
    """The metadata that a lane noted with a position; empty if somebody else committed it."""
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def notes(
    epochs: Sequence[tuple[int, int]],
    cluster_id: str | None,
    topic_id: bytes,
    writer: str | None,
    cut: int | None,
    stop: str = "",
) -> str:
    """The metadata of a position. :param epochs: (leader epoch, first offset).

    :param cluster_id: and `topic_id`: of the source. :param writer: the transactional id that commits it.
    :param cut: see `cut_noted`. :param stop: see `stop_noted`.
    """
    found: dict[str, object] = {"epochs": epochs}
    if cluster_id is not None:
        found["cluster_id"] = cluster_id
    if topic_id != UNKNOWN_TOPIC_ID:
        found["topic_id"] = topic_id.hex()
    if writer is not None:
        found["by"] = writer
    if cut is not None:
        found["truncated"] = cut
    if stop:
        found["stopped"] = stop[:LONGEST_REASON]
    return json.dumps(found, separators=(",", ":"))


def cut_noted(metadata: str, position: int) -> int | None:
    """The offset at which the source was truncated, from the metadata of a partition that stopped for this reason; else None.

    It is noted, because the log of the source can become longer than the position before a worker starts again.
    """
    cut = noted(metadata).get("truncated")
    return cut if type(cut) is int and 0 <= cut < position else None


def stop_noted(metadata: str) -> str:
    """Why a partition has stopped at its position, from the metadata; "" if it has not.

    It is noted for `odradek mirror status`, which finds it also if no worker runs.
    """
    reason = noted(metadata).get("stopped")
    return reason if isinstance(reason, str) else ""


def truncated(
    source: TopicPartition,
    target: TopicPartition,
    position: int,
    offset: int | None,
    below: int,
    continued: bool = False,
) -> str:
    """Why a partition whose source lost copied records stops.

    :param offset: the first one that the source does not have any more; None: unknown, but at most `below`.
    :param continued: it does not stop: leave the remedies out.
    """
    name, copy = f"{source[0]}-{source[1]}", f"{target[0]}-{target[1]}"
    if offset is None:
        return (
            f"the source's log of {name} is not the one that was copied: from an offset on that is unknown, at most {below}, "
            f"to {position - 1} the source has other records than the copy {copy}, or none; delete the copy to begin again"
        )
    lost = (
        f"the source's log of {name} was truncated: the copy {copy} has the records of the source's offsets {offset} to "
        f"{position - 1}, which the source does not have any more"
    )
    if continued:
        return lost
    return (
        f"{lost}; to keep them and to copy on from offset {offset}, set odradek.mirror.source.truncation=continue, or delete"
        " the copy to begin again"
    )


def changed_source(
    source: TopicPartition, target: TopicPartition, metadata: str, topic_id: bytes, cluster_id: str | None
) -> str | None:
    """Why a position is not one of the source's topic; None if it is, or if that cannot be known.

    :param metadata: of the position. :param topic_id: of the source's topic now. :param cluster_id: of the source; None if it
        reports none.
    """
    known = noted(metadata)
    try:
        was, former = bytes.fromhex(str(known.get("topic_id", ""))), known.get("cluster_id")
    except ValueError:
        return None  # somebody else committed it, such as an operator with a tool
    if former is not None and cluster_id is not None and former != cluster_id:
        return (
            f"the position of {target[0]}-{target[1]} is one of the cluster '{former}', and the source is the cluster "
            f"'{cluster_id}'"
        )
    if len(was) != len(UNKNOWN_TOPIC_ID) or UNKNOWN_TOPIC_ID in (was, topic_id) or was == topic_id:
        return None
    return made_again(source[0], was, topic_id)


def made_again(name: str, was: bytes, now: bytes) -> str:
    """Why a topic with another id is not copied."""
    return f"the topic '{name}' was deleted and created again in the source: its id was {was.hex()}, and is {now.hex()}"
