"""Fixtures that several tests of the shared memory use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shm.one_broker import OneBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    """A broker of one process, with an empty log directory `data` below `tmp_path`."""
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data) as made:
        yield made
