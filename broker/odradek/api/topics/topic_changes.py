"""What the responses of CreateTopics, CreatePartitions and DeleteTopics wait for in a cluster: this broker shows the changes.

The controller has written the changes to the tree then, and sends them to all brokers. Clients ask this broker for the metadata
as soon as they have the response, so the response waits until this broker has executed the controller's request: a created
partition then has a leader, and a deleted topic is invisible. After `timeout_ms` of the request the topics that are not shown
yet get REQUEST_TIMED_OUT, as by Kafka; the changes continue. A request with a `timeout_ms` of 0 or less does not wait.
"""

from typing import Any, NamedTuple

from odradek._ext.shm.topics import TopicDirectory
from odradek.api.table import BY_KEY, function_of
from odradek.protocol.errors import ErrorCode

DELETED = 0


class AwaitedTopic(NamedTuple):
    """A topic that was changed. :ivar topic_id: None: any. :ivar partitions: its partitions now; DELETED: none.
    :ivar result: its row in the response."""

    name: str
    topic_id: bytes | None
    partitions: int
    result: Any

    def shown(self, topics: TopicDirectory) -> bool:
        """Whether this broker shows the change to clients."""
        topic = topics.get(self.name)
        if topic is None or self.topic_id not in (None, topic.topic_id):
            return self.partitions == DELETED
        return not topic.is_published() if self.partitions == DELETED else topic.has_leaders(self.partitions)


class TopicChange:
    """A response that waits. Used in the coordinator's loop.

    :ivar awaited: the topics that this broker does not show yet, as far as `look` has found.
    """

    def __init__(self, response: Any, timeout_s: float, awaited: list[AwaitedTopic]) -> None:
        self.response = response
        self.timeout_s = timeout_s
        self.awaited = awaited

    def look(self, topics: TopicDirectory) -> bool:
        """Whether this broker shows all changes now."""
        self.awaited = [topic for topic in self.awaited if not topic.shown(topics)]
        return not self.awaited

    def time_out(self) -> None:
        """Write to the response which topics this broker does not show yet."""
        for topic in self.awaited:
            topic.result.error_code = ErrorCode.REQUEST_TIMED_OUT
            topic.result.error_message = (
                f"the controller has stored the deletion of topic '{topic.name}', but this broker has not executed it yet"
                if topic.partitions == DELETED
                else f"the controller has stored the change of topic '{topic.name}', but not all of its {topic.partitions} "
                "partitions have a leader yet; look at their replicas with `odradek topic show`"
            )


def awaited_change(api_key: int, request: Any, response: Any) -> Any:
    """The response of a request as a `TopicChange` if it must wait, else as it is."""
    if not BY_KEY[api_key].has_awaited or request.timeout_ms <= 0:
        return response
    awaited = function_of(api_key, "awaited")(request, response)
    return TopicChange(response, request.timeout_ms / 1000, awaited) if awaited else response
