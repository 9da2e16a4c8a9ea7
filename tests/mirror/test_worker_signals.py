"""SIGHUP to a worker of a mirror."""

import logging

import pytest

from odradek.mirror.settings import MirrorSettings
from odradek.mirror.worker import Worker


def test_a_hang_up_signal_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "odradek.mirror")

    def make_lane(*_: object) -> object:
        raise AssertionError("there is no flow")

    worker = Worker(MirrorSettings("mirror.properties", {}, (), "a", None), (), make_lane, ValueError)
    worker.note_hang_up()
    worker.note_hang_up()
    worker.stop()
    worker.run()
    message = "received SIGHUP and ignored it: a change of mirror.properties needs a restart"
    assert [record.getMessage() for record in caplog.records] == [message, message]
