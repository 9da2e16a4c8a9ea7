"""The levels of features are changed with UpdateFeatures only, not as settings. The broker is not shared: the levels stay
set."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_configs, describe_configs, update_features
from odradek.testing import Broker
from tests.api.test_alter_configs import BROKER, DELETE, SET, alter
from tests.wire import Wire

pytestmark = pytest.mark.xdist_group("api-other")


@pytest.fixture(scope="module")
def wire(tmp_path_factory):
    with Broker(directory=tmp_path_factory.mktemp("features")) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with Wire(host, int(port)) as connection:
            yield connection


def broker_settings(wire):
    """Those of all brokers."""
    make = describe_configs.Request
    request = make(
        resources=[make.DescribeConfigsResource(resource_type=BROKER, resource_name="", configuration_keys=None)]
    )
    (result,) = wire.ask(request, describe_configs.API_KEY, 4).results
    return {setting.name: setting.value for setting in result.configs if setting.value is not None}


def raise_level(wire, level):
    make = update_features.Request
    update = make.FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=2 - level // 2)
    assert wire.ask(make(feature_updates=[update]), update_features.API_KEY, 1).error_code == 0


LEVEL, EPOCH = "odradek.transaction.version", "odradek.features.epoch"


@pytest.mark.parametrize("edit", [(LEVEL, SET, "2"), (EPOCH, SET, "9"), (LEVEL, DELETE, None), (EPOCH, DELETE, None)])
def test_the_level_of_a_feature_is_changed_with_update_features_only(wire, edit):
    raise_level(wire, 1)
    try:
        before = broker_settings(wire)
        assert before[LEVEL] == "1" and int(before[EPOCH]) > 0
        refused = alter(wire, "", edit, kind=BROKER)
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert edit[0] in refused.error_message and "kafka-features.sh" in refused.error_message
        assert alter(wire, "", (LEVEL, SET, "1"), kind=BROKER).error_code == 0  # no change
        assert broker_settings(wire) == before
    finally:
        raise_level(wire, 2)


def test_a_replacement_of_all_settings_keeps_the_levels_of_features(wire):
    raise_level(wire, 1)
    try:
        before = broker_settings(wire)
        make = alter_configs.Request
        settings = [make.AlterableConfig(name="log.cleaner.backoff.ms", value="14000")]
        resource = make.AlterConfigsResource(resource_type=BROKER, resource_name="", configs=settings)
        (answer,) = wire.ask(make(resources=[resource]), alter_configs.API_KEY, 1).responses
        assert answer.error_code == 0, answer
        after = broker_settings(wire)
        assert after["log.cleaner.backoff.ms"] == "14000"
        assert (after[LEVEL], after[EPOCH]) == (before[LEVEL], before[EPOCH])
        assert alter(wire, "", ("log.cleaner.backoff.ms", DELETE, None), kind=BROKER).error_code == 0
    finally:
        raise_level(wire, 2)
