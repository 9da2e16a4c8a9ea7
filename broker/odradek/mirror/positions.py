"""What a lane notes with a position, and whether the position belongs to the source as it is now.

Pure functions: used by the threads of the lanes, and by `odradek mirror status`.
"""

import json

from odradek.mirror.routes import UNKNOWN_TOPIC_ID, Place


def noted(metadata: str) -> dict[str, object]:
    """The metadata that a lane noted with a position; empty if somebody else committed it."""
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def changed_source(source: Place, target: Place, metadata: str, topic_id: bytes, cluster_id: str | None) -> str | None:
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
