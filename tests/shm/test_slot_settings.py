"""Which partitions of a topic a broker throttles, from the lists of the topic's configuration to the settings of slots."""

import pytest

from odradek._ext.shm.slot import ThrottledSide
from odradek.config.errors import ConfigError
from odradek.config.table import TOPIC_KEYS
from odradek.controller.partitions import topic_settings
from odradek.shm.slot_settings import SlotSettings, of_partition, throttled_partitions

LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
OWN = 7


def throttled(leaders: str, followers: str, partition: int) -> int:
    """The bits of a partition in broker OWN."""
    values = {name: key.default for name, key in TOPIC_KEYS.items()}
    values |= {LEADERS: TOPIC_KEYS[LEADERS].parse(leaders), FOLLOWERS: TOPIC_KEYS[FOLLOWERS].parse(followers)}
    return of_partition(topic_settings(values, OWN), partition)["throttled"]


@pytest.mark.parametrize(
    ("leaders", "followers", "expected"),
    [
        ("", "", [0, 0, 0]),
        ("*", "", [1, 1, 1]),
        ("", "*", [2, 2, 2]),
        ("*", "*", [3, 3, 3]),
        ("0:7,1:8,2:6", "", [1, 0, 0]),
        ("0:7, 2:7", "1:7,2:7,2:8", [1, 2, 3]),
        ("0:8,1:8", "0:70,1:77", [0, 0, 0]),
        ("0:7,", ",2:7", [1, 0, 2]),
    ],
)
def test_a_broker_throttles_the_partitions_that_name_it(leaders: str, followers: str, expected: list[int]) -> None:
    assert [throttled(leaders, followers, partition) for partition in range(3)] == expected


@pytest.mark.parametrize("text", ["0", "all", "*,0:1", "0:1,*", "**", "0:1:2", "0:-1", "a:1", "0 1", "0:1;1:2"])
def test_other_lists_are_refused_with_the_allowed_form(text: str) -> None:
    for key in (LEADERS, FOLLOWERS):
        with pytest.raises(ConfigError) as raised:
            TOPIC_KEYS[key].parse(text)
        for part in (key, text, "* or a comma-separated list of partition:broker, such as 0:1,0:2,1:1"):
            assert part in str(raised.value)


def test_settings_without_lists_keep_the_throttles() -> None:
    assert of_partition({"retention_ms": 1}, 0) == {"retention_ms": 1}
    assert of_partition(SlotSettings({"retention_ms": 1}, {}), 0) == {"retention_ms": 1, "throttled": 0}
    sides = {ThrottledSide.THROTTLED_LEADER: throttled_partitions(("0:7",), OWN)}
    assert of_partition(SlotSettings({}, sides), 0) == {"throttled": 1}
