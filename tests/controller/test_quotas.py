"""Quotas in the metadata store: reading all of them does not stop the controller."""

from broker.api.stepwise import Stepwise
from broker.controller import quotas
from broker.controller.quotas import CLIENT_ID, USER, Filter, Quotas
from broker.metadata import znodes


def test_quotas_of_very_many_entities_are_described_in_steps_of_limited_length(cluster):
    data = znodes.encode_config({"producer_byte_rate": "5"})
    cluster.store.fill((znodes.quota_path(None, f"client-{number}", None), data, 0) for number in range(1000))
    cluster.store.fill((znodes.quota_path("user", f"client-{number}", None), data, 0) for number in range(300))
    statements = []
    cluster.store._db.set_trace_callback(statements.append)
    job = Stepwise(Quotas(cluster.store, cluster.controller).describe([Filter(CLIENT_ID, None, True)], False))
    steps, more = 0, True
    while more:
        statements.clear()
        more = job.step()
        steps += 1
        assert len(statements) <= 2 * quotas.STEP
    cluster.store._db.set_trace_callback(None)
    assert steps == 1300 // quotas.STEP + 1
    assert sum(USER in entity for entity, _ in job.result) == 300
    assert [values for _, values in job.result] == [{"producer_byte_rate": 5.0}] * 1300
