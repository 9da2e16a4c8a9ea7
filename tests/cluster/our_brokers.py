"""Brokers of one cluster, for tests that need nothing else of it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from odradek.testing.broker_process import Broker


@contextmanager
def started(directory: Path, ids: Iterable[int], settings: Mapping[str, object]) -> Iterator[dict[int, Broker]]:
    """Start brokers, and end them; returns them by id.

    :param directory: gets a directory for each broker. :param settings: of each of them; `zookeeper.connect` names the cluster.
    """
    with ExitStack() as stack:
        brokers = {}
        for broker_id in ids:
            config = {"num.network.threads": 1, **settings, "broker.id": broker_id}
            brokers[broker_id] = stack.enter_context(Broker(config, directory=directory / str(broker_id)))
        yield brokers
