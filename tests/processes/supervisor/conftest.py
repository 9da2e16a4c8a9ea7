import signal
from collections.abc import Iterator

import pytest

from tests.processes.supervisor.fake_broker import FakeBroker


@pytest.fixture
def broker(tmp_path):
    """A supervisor with obedient mains, not yet started."""
    fake = FakeBroker(tmp_path)
    yield fake
    fake.close()


@pytest.fixture
def hang_up_by_default() -> Iterator[None]:
    """SIGHUP has its default action here and in the programs that the test starts, also if `nohup` started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
