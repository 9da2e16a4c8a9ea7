"""AlterReplicaLogDirs on a broker with two log directories: moves are refused, and nothing moves."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_replica_log_dirs, describe_log_dirs
from odradek.testing import Broker
from tests.wire import Wire

pytestmark = pytest.mark.xdist_group("replica-log-dirs")


def places(wire: Wire) -> dict[str, str]:
    """The directory of each partition."""
    told = wire.ask(describe_log_dirs.Request(topics=None), describe_log_dirs.API_KEY, 4)
    return {
        f"{topic.name}-{one.partition_index}": result.log_dir
        for result in told.results
        for topic in result.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(3))
def test_a_replica_stays_where_it_is(tmp_path, version):
    directories = [str(tmp_path / "one"), str(tmp_path / "two")]
    make = alter_replica_log_dirs.Request
    config = {"log.dirs": ",".join(directories), "num.network.threads": 1}
    with Broker(config, directory=tmp_path / "b") as broker, Wire(broker.host, broker.port) as wire:
        wire.create("topic", 2)
        wire.until_led("topic", 2)
        before = places(wire)
        assert set(before.values()) == set(directories)
        for directory in directories:
            topic = make.AlterReplicaLogDirTopic(name="topic", partitions=[0, 1])
            asked = make(dirs=[make.AlterReplicaLogDir(path=directory, topics=[topic])])
            (told,) = wire.ask(asked, alter_replica_log_dirs.API_KEY, version).results
            assert {one.partition_index: one.error_code for one in told.partitions} == {
                number: ErrorCode.NONE if before[f"topic-{number}"] == directory else ErrorCode.OPERATION_NOT_ATTEMPTED
                for number in (0, 1)
            }
        assert places(wire) == before
        assert "refused to move" in broker.log_file.read_text()
