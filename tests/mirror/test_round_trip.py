"""`odradek mirror run` from Kafka 3.9 over Odradek to Kafka 4.3: keys, values, headers, timestamps and codecs stay equal."""

from __future__ import annotations

from pathlib import Path

from odradek.clients.cluster import Cluster
from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.mirror.commands import mirror, worker
from tests.mirror.lanes import records_of
from tests.mirror.test_lane import CODECS, producer, write
from tests.mirror.test_lane_against_kafka import CONFIG, create, write_transactions
from tests.waiting import until

PARTITIONS = 3
EACH = 900 // PARTITIONS + 4 * 30 // PARTITIONS


def test_every_codec_and_transactions_go_from_kafka_39_over_odradek_to_kafka_43(tmp_path: Path) -> None:
    names = [f"round-{codec}" for codec in CODECS]
    places = [(name, number) for name in names for number in range(PARTITIONS)]
    file = tmp_path / "mirror.properties"
    with Peer(tmp_path / "old", CONFIG, "3.9.1") as old, Broker() as ours, Peer(tmp_path / "new", CONFIG) as new:
        file.write_text(
            f"clusters = old, ours, new\nold.bootstrap.servers = {old.bootstrap_servers}\n"
            f"ours.bootstrap.servers = {ours.bootstrap_servers}\nnew.bootstrap.servers = {new.bootstrap_servers}\n"
            "old->ours.enabled = true\nours->new.enabled = true\ntopics = round-.*, old\\\\.round-.*\n"
            "refresh.topics.interval.seconds = 1\nodradek.mirror.lanes = 2\nodradek.mirror.metrics.listener =\n"
        )
        for name, codec in zip(names, CODECS, strict=True):
            create(old.bootstrap_servers, name, PARTITIONS)
            write(producer(old.bootstrap_servers, **{"compression.type": codec}), name, PARTITIONS, range(600))
            write_transactions(old.bootstrap_servers, name, PARTITIONS)
            write(producer(old.bootstrap_servers, **{"compression.type": codec}), name, PARTITIONS, range(600, 900))
        assert mirror("check", str(file)).returncode == 0
        with worker(str(file), tmp_path / "log") as process, Cluster(new.bootstrap_servers) as cluster:
            copies = [(f"ours.old.{name}", number) for name, number in places]

            def arrived() -> bool:
                if not {name for name, _ in copies} <= set(cluster.metadata().topics):
                    return False
                return all(len(records_of(new.bootstrap_servers, copy)) >= EACH for copy in copies)

            until(arrived, lambda: f"everything is in the last cluster; {process.log}", 120)
            assert process.stop() == 0
        for place, copy in zip(places, copies, strict=True):
            original = records_of(old.bootstrap_servers, place)
            assert len(original) == EACH
            assert {seen.codec for seen in original} <= {CODECS.index(place[0].removeprefix("round-")), 0}
            assert records_of(ours.bootstrap_servers, (f"old.{place[0]}", place[1])) == original
            assert records_of(new.bootstrap_servers, copy) == original
