"""Calls a handler like the coordinator does: with the encoded request of every version, over a real store and table."""

from collections.abc import Generator

from odradek.api.coordinator_call import CoordinatorCall, CoordinatorView
from odradek.api.table import BY_KEY, function_named
from odradek.controller.broker_settings import BrokerSettings
from odradek.controller.producer_ids import ProducerIds
from odradek.protocol import decode, encode
from odradek.protocol.registry import by_key
from odradek.shm.running_config import RunningConfig
from odradek.stepwise import Stepwise
from tests.controller.mortal_cluster import BROKER


class Harness:
    """Handlers over a `Cluster`."""

    def __init__(self, cluster):
        self.cluster = cluster
        ids = ProducerIds(cluster.store, BROKER)
        settings = BrokerSettings(cluster.store, cluster.controller, cluster.config, RunningConfig(), cluster.shm)
        self.view = CoordinatorView(cluster.config, cluster.store, cluster.controller, ids, cluster.table, settings)

    def ask(self, request, api_key, version=None):
        """The response to a request, both having gone over the wire in this version (the newest if None)."""
        row, schema = BY_KEY[api_key], by_key(api_key)
        version = row.max_version if version is None else version
        assert row.min_version <= version <= row.max_version
        data = encode(request, version)
        received, end = decode(schema.request, version, data)
        assert end == len(data)
        call = CoordinatorCall(version, "tests", "127.0.0.1:1", "User:ANONYMOUS", 0, self.view)
        response = function_named(row.handler)(received, call)
        if isinstance(response, Generator):
            response = Stepwise(response).finish()
        answer, _ = decode(schema.response, version, encode(response, version))
        return answer


def versions(api_key):
    """All versions of an API that are served."""
    row = BY_KEY[api_key]
    return range(row.min_version, row.max_version + 1)
