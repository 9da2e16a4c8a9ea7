"""What the service manager hears of a reload, however long the coordinator takes."""

from collections.abc import Iterator

import pytest

from odradek.config.broker_config import Source
from odradek.net.notify import Notifier
from odradek.processes.supervisor.event_loop import EventLoop
from odradek.processes.supervisor.file_reload import LATE_S, LOOK_S, FileReload
from odradek.shm.running_config import RunningConfig

SOURCE = Source("/etc/odradek/server.properties", ())


class Messages(Notifier):
    """Those to the service manager."""

    def __init__(self) -> None:
        super().__init__({})
        self.sent: list[dict[str, object]] = []

    def send(self, **fields: object) -> None:
        self.sent.append(fields)


class Supervisor:
    """What it needs of the reload; its time passes only in `wait`."""

    def __init__(self) -> None:
        self.now, self.state = 1000.0, "serving on x"
        self.running, self.messages = RunningConfig(), Messages()
        self.loop = EventLoop(lambda: self.now)
        self.reload = FileReload(self.running, self.loop, self.messages, lambda: self.state)

    def wait(self, seconds: float) -> list[dict[str, object]]:
        """Returns the messages of this time."""
        self.messages.sent.clear()
        for _ in range(round(seconds / LOOK_S)):
            self.now += LOOK_S * 1.001
            self.loop.turn()
            if not self.loop.has_timer("reload"):
                break
        return self.messages.sent


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    made = Supervisor()
    yield made
    made.loop.close()


def test_the_service_manager_does_not_wait_for_a_coordinator_that_cannot_serve(supervisor: Supervisor) -> None:
    supervisor.reload.request(SOURCE)
    (begin,) = supervisor.messages.sent
    assert begin["RELOADING"] == 1
    assert supervisor.wait(LATE_S - 1) == []
    (late,) = supervisor.wait(5 * LATE_S)
    assert late == {
        "READY": 1,
        "STATUS": "serving on x; it has not read the changed configuration file yet, see its log",
    }
    supervisor.running.reloaded(supervisor.running.reload_requests, refused=False)
    assert supervisor.wait(1) == [{"READY": 1, "STATUS": "serving on x"}]
    assert not supervisor.loop.has_timer("reload")


@pytest.mark.parametrize(
    ("refused", "note"), [(False, ""), (True, "; it could not use the changed configuration file")]
)
def test_the_end_of_a_reload_is_reported_with_its_result(supervisor: Supervisor, refused: bool, note: str) -> None:
    supervisor.reload.request(SOURCE)
    supervisor.running.reloaded(supervisor.running.reload_requests, refused)
    (end,) = supervisor.wait(1)
    assert end["READY"] == 1
    assert str(end["STATUS"]).startswith(f"serving on x{note}")


def test_each_request_has_its_own_time(supervisor: Supervisor) -> None:
    supervisor.reload.request(SOURCE)
    supervisor.wait(LATE_S - 1)
    supervisor.reload.request(SOURCE)
    assert supervisor.wait(LATE_S - 1) == []
    assert len(supervisor.wait(2)) == 1


def test_a_broker_that_does_not_serve_says_nothing(supervisor: Supervisor) -> None:
    """The end of its start, or of its stop, is reported elsewhere."""
    supervisor.state = ""
    supervisor.reload.request(SOURCE)
    assert supervisor.wait(2 * LATE_S) == []
    assert supervisor.running.reload_is_due


def test_without_a_file_nothing_is_requested(supervisor: Supervisor, caplog: pytest.LogCaptureFixture) -> None:
    supervisor.reload.request(None)
    assert (supervisor.messages.sent, supervisor.running.reload_is_due) == ([], False)
    assert "ignored it" in caplog.text
