"""Clusters of one broker for the tests of this directory."""

import pytest

from tests.controller.mortal_cluster import Cluster


@pytest.fixture
def make_cluster(tmp_path):
    made = []

    def make(settings=(), **options):
        path = tmp_path / str(len(made))
        path.mkdir()
        cluster = Cluster(path, settings, **options)
        made.append(cluster)
        cluster.open().take_office()
        return cluster

    yield make
    for cluster in made:
        for store in cluster.stores:
            store.close()


@pytest.fixture
def cluster(make_cluster):
    return make_cluster()
