"""Settings that were changed at run time survive the coordinator and the broker, and the cleaner uses them."""

from collections.abc import Iterator

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_configs, incremental_alter_configs
from odradek.storage.batch import Record, build_batch
from odradek.testing import Broker
from tests.children import kill
from tests.waiting import until
from tests.wire import Wire

pytestmark = pytest.mark.xdist_group("running-settings")

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE = 0, 1
NEVER_MS = 3_600_000
SETTINGS = (
    (TOPIC, "settings", "retention.ms", "86400001"),
    (BROKER, "", "log.retention.ms", "86400002"),
    (BROKER, "1", "log.cleaner.delete.retention.ms", "86400003"),
    (GROUP, "group", "consumer.session.timeout.ms", "50000"),
)


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Its cleaner looks for work once an hour."""
    config = {"log.cleaner.backoff.ms": NEVER_MS, "num.network.threads": 1}
    with Broker(config, directory=tmp_path_factory.mktemp("settings")) as one:
        yield one


def alter(wire: Wire, kind: int, name: str, key: str, value: str) -> None:
    make = incremental_alter_configs.Request
    config = make.AlterableConfig(name=key, config_operation=SET, value=value)
    resource = make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    (told,) = wire.ask(make(resources=[resource]), incremental_alter_configs.API_KEY, 1).responses
    assert told.error_code == 0, told


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("listener.name.nosuch.ssl.keystore.location", "nosuch"),
        ("listener.name.PLAINTEXT.max.connections", "PLAINTEXT"),
    ],
)
def test_a_setting_of_a_listener_that_does_not_exist_is_refused(broker: Broker, key: str, name: str) -> None:
    """Kafka accepts it: its listeners can be changed at run time, too."""
    make = incremental_alter_configs.Request
    with Wire(broker.host, broker.port) as wire:

        def outcome(key: str, operation: int, value: str | None) -> tuple[int, str]:
            config = make.AlterableConfig(name=key, config_operation=operation, value=value)
            resource = make.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
            (result,) = wire.ask(make(resources=[resource]), incremental_alter_configs.API_KEY, 1).responses
            return result.error_code, result.error_message

        code, message = outcome(key, SET, "5")
        assert code == ErrorCode.INVALID_REQUEST
        assert f"listeners has no listener {name}; the names (in lower case) are plaintext" in message
        assert outcome(key, DELETE, None)[0] == 0, "a setting of a former listener can be removed"
        assert outcome("listener.name.plaintext.max.connections", SET, "5000")[0] == 0


def told(wire: Wire, kind: int, name: str, key: str) -> str | None:
    make = describe_configs.Request
    asked = make.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    (result,) = wire.ask(make(resources=[asked]), describe_configs.API_KEY, 4).results
    assert result.error_code == 0, result
    return next((one.value for one in result.configs), None)


def all_there(broker: Broker) -> bool:
    """Whether every setting is told; False while there is no coordinator to ask."""
    try:
        with Wire(broker.host, broker.port) as wire:
            return all(told(wire, kind, name, key) == value for kind, name, key, value in SETTINGS)
    except (OSError, EOFError):
        return False


def limit_holds(broker: Broker) -> bool:
    """Whether a record of 500 bytes is refused: what a worker does, not what is told."""
    with Wire(broker.host, broker.port) as wire:
        return wire.produce("settings", build_batch([Record(None, bytes(500), 0)])).error_code == 10


def test_settings_outlive_the_coordinator_and_the_broker(broker: Broker) -> None:
    with Wire(broker.host, broker.port) as wire:
        wire.create("settings")
        for setting in SETTINGS:
            alter(wire, *setting)
        alter(wire, BROKER, "", "message.max.bytes", "200")
    assert all_there(broker) and limit_holds(broker)

    (pid,) = [one["pid"] for one in broker.processes() if one["kind"] == "coordinator"]
    kill(pid)
    assert limit_holds(broker)
    until(lambda: all_there(broker), broker.log_tail)

    broker.restart()
    until(lambda: all_there(broker), broker.log_tail)
    until(lambda: limit_holds(broker), broker.log_tail)
    broker.kill_group()
    broker.start()
    until(lambda: all_there(broker), broker.log_tail)
    until(lambda: limit_holds(broker), broker.log_tail)


def test_a_cleaner_setting_takes_effect_while_the_broker_runs(broker: Broker) -> None:
    """It would look at the log in an hour; told to look at once, it compacts.

    Its first look, as it starts, may come late, when the records are there: they are too young to be compacted by then.
    """
    first = broker.data_dir / "compacted-0" / f"{0:020}.log"
    with Wire(broker.host, broker.port) as wire:
        young = {"min_compaction_lag_ms": 10**12}
        wire.create(
            "compacted", cleanup_policy="compact", segment_bytes=1 << 20, min_cleanable_dirty_ratio=0.01, **young
        )
        wire.until_led("compacted")
        for number in range(60):
            records = [Record(b"key", bytes(50_000), 1_700_000_000_000 + number)]
            assert wire.produce("compacted", build_batch(records)).error_code == 0
        size = first.stat().st_size
        assert size > 500_000 and len(list(first.parent.glob("*.log"))) > 1
        alter(wire, TOPIC, "compacted", "min.compaction.lag.ms", "0")
        alter(wire, BROKER, "1", "log.cleaner.backoff.ms", "50")
    until(lambda: not first.exists() or first.stat().st_size < size // 2, broker.log_tail)
