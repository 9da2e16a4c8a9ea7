"""A mirror by hand, for tests of what surrounds the lanes: copies with another client library, in transactions with positions.

It keeps the contract of the lanes: committed records only, each once and in order, positions under the target's topic in the
group of the flow, committed with the records; `moved` after the commit, once for each sequence that is consecutive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from odradek.mirror.routes import Observer, Route

TRANSACTION_RECORDS = 40


class HandMirror:
    """Copies the routes from `source` to `target` (bootstrap servers) in a thread, between `start` and `stop`.

    :param group_id: of the positions. :param pause: asked before each transaction; while it returns True, nothing is copied.
    """

    def __init__(
        self,
        source: str,
        target: str,
        group_id: str,
        routes: list[Route],
        observer: Observer,
        pause: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source = source
        self._target = target
        self._group_id = group_id
        self._routes = {route.source: route for route in routes}
        self._observer = observer
        self._pause = pause
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._positions = dict.fromkeys(self._routes, 0)
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin to copy."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the present transaction; raise what went wrong."""
        self._stopping.set()
        self._thread.join(60)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self._copy()
        except BaseException as error:
            self.error = error

    def _copy(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._source,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        consumer.assign([TopicPartition(*place, 0) for place in self._routes])
        producer = Producer({"bootstrap.servers": self._target, "transactional.id": self._group_id, "linger.ms": 0})
        producer.init_transactions(30)
        holder = Consumer({"bootstrap.servers": self._target, "group.id": self._group_id})
        try:
            while not self._stopping.is_set():
                if self._pause():
                    self._stopping.wait(0.005)
                    continue
                messages = consumer.consume(TRANSACTION_RECORDS, 0.02)
                if messages:
                    self._transact(producer, holder, messages)
        finally:
            consumer.close()
            holder.close()

    def _transact(self, producer: Producer, holder: Consumer, messages: list[Message]) -> None:
        copied: list[tuple[Message, int]] = []

        def delivered(message: Message) -> Callable[[Any, Message], None]:
            def note(error: Any, copy: Message) -> None:
                assert error is None, error
                copied.append((message, copy.offset()))

            return note

        producer.begin_transaction()
        for message in messages:
            assert message.error() is None, message.error()
            place = (message.topic(), message.partition())
            topic, number = self._routes[place].target
            producer.produce(
                topic,
                message.value(),
                message.key(),
                number,
                on_delivery=delivered(message),
                timestamp=message.timestamp()[1],
                headers=message.headers(),
            )
            self._positions[place] = message.offset() + 1
        producer.flush(30)
        positions = [
            TopicPartition(*self._routes[place].target, position)
            for place, position in self._positions.items()
            if position
        ]
        producer.send_offsets_to_transaction(positions, holder.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        self._report(copied)

    def _report(self, copied: list[tuple[Message, int]]) -> None:
        """Call `moved` for each sequence that is consecutive on both sides."""
        for place, route in self._routes.items():
            of_place = [(m, offset) for m, offset in copied if (m.topic(), m.partition()) == place]
            first = 0
            for index in range(1, len(of_place) + 1):
                if index < len(of_place):
                    (before, at), (now, now_at) = of_place[index - 1], of_place[index]
                    if now.offset() == before.offset() + 1 and now_at == at + 1:
                        continue
                begin, begin_at = of_place[first]
                end = of_place[index - 1][0].offset() + 1
                self._observer.moved(route, begin.offset(), begin_at, end, index - first, 0, 0)
                first = index
