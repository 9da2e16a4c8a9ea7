"""Clusters of one broker for the tests of this directory."""

import pytest

from tests.controller.mortal_cluster import single_broker


@pytest.fixture
def make_cluster(tmp_path):
    with single_broker(tmp_path) as make:
        yield make


@pytest.fixture
def cluster(make_cluster):
    return make_cluster()
