"""Brokers of these tests join clusters, which is a preview."""

from collections.abc import Iterator

import pytest

from odradek.config.broker_config import CLUSTER_PREVIEW


@pytest.fixture(scope="package", autouse=True)
def cluster_preview() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CLUSTER_PREVIEW, "1")
        yield
