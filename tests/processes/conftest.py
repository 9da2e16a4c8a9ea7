import pytest

from tests.processes.fake_broker import FakeBroker


@pytest.fixture
def broker(tmp_path):
    """A supervisor with obedient mains, not yet started."""
    fake = FakeBroker(tmp_path)
    yield fake
    fake.close()
