"""Notices that a copy was deleted or created again while a worker mirrors to it: else it would silently lack its first records.

Belongs to one flow and its thread. A lane keeps its position in the source in memory, so it would continue in the middle of
a copy that was created again. Therefore a worker whose copy was deleted first stops mirroring the topic, and creates the copy
again only after all workers had the time to notice. The target forgets the positions of a deleted topic, so that all lanes
begin at its start. A copy that somebody else created again is refused.
"""

SEARCHES = 2.5
"""How many searches for topics a worker waits before it creates a copy again: each worker has searched once by then."""


class Copies:
    """The copies to which a worker mirrors. :param alias: of the target. :param wait_s: before a copy is created again."""

    def __init__(self, alias: str, wait_s: float) -> None:
        self._alias = alias
        self._wait_s = wait_s
        self._ids: dict[str, bytes] = {}
        self._gone_since: dict[str, float] = {}

    def mirrored(self, copy: str, topic_id: bytes) -> None:
        """Note that lanes have the partitions of this copy. :param topic_id: zeros if the target reports none."""
        self._ids[copy] = topic_id
        self._gone_since.pop(copy, None)

    def obstacle(self, copy: str, topic_id: bytes | None, now: float) -> str | None:
        """Why a topic cannot be mirrored to this copy now; None if it can. :param topic_id: None: there is no such topic."""
        known = self._ids.get(copy)
        if known is None:
            return None
        if topic_id is None:
            since = self._gone_since.setdefault(copy, now)
            if now - since < self._wait_s:
                return (
                    f"its copy '{copy}' was deleted in {self._alias}; when all workers have noticed it, after "
                    f"{self._wait_s:.0f} s, the mirror creates the copy again and mirrors the topic from its start"
                )
            del self._ids[copy], self._gone_since[copy]
            return None
        if topic_id == known or copy in self._gone_since or not any(topic_id) or not any(known):
            return None
        return (
            f"its copy '{copy}' in {self._alias} was deleted and created again while the topic was mirrored, so that records "
            "are missing in it; delete it, and the mirror creates it again with all records"
        )
