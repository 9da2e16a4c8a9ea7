"""Lets responses about changed topics wait until this broker shows the changes to clients, see `api/topic_changes.py`.

Used only in the coordinator's event loop, which every change of the published metadata wakes.
"""

import asyncio
import time
from collections.abc import Callable

from odradek._ext.shm.topics import TopicDirectory
from odradek.api.topics.topic_changes import TopicChange

MARGIN_S = 1.0
"""A wait ends this time in seconds before the client's worker gives up."""


class TopicWaits:
    """See the module. :param topics: returns the directory of the topics as of now."""

    def __init__(self, topics: Callable[[], TopicDirectory]) -> None:
        self._topics = topics
        self._waiting: dict[asyncio.Event, TopicChange] = {}

    async def wait(self, change: TopicChange, deadline: float) -> None:
        """Wait until this broker shows the change, at most `change.timeout_s`; then the response has the errors.

        :param deadline: when the client's worker gives up, in monotonic time.
        """
        timeout_s = min(change.timeout_s, max(0.0, deadline - time.monotonic() - MARGIN_S))
        if change.look(self._topics()):
            return
        shown = asyncio.Event()
        self._waiting[shown] = change
        try:
            await asyncio.wait_for(shown.wait(), timeout_s)
        except TimeoutError:
            if not change.look(self._topics()):
                change.time_out()
        finally:
            del self._waiting[shown]

    def look(self) -> None:
        """The published metadata may have changed."""
        if self._waiting:
            topics = self._topics()
            for shown, change in self._waiting.items():
                if change.look(topics):
                    shown.set()
