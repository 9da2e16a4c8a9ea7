"""An ordered stop while members of a group wait for each other."""

from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.api.group_talk import GroupTalk
from tests.waiting import until


def test_a_stop_answers_a_waiting_member_and_closes_idle_connections(tmp_path):
    settings = {
        "group.initial.rebalance.delay.ms": 600_000,
        "num.network.threads": 1,
        "offsets.topic.num.partitions": 1,
    }
    with Broker(settings, directory=tmp_path) as broker:
        with GroupTalk(broker.host, broker.port) as member, GroupTalk(broker.host, broker.port) as idle:
            idle.until_coordinated("g")
            member.send_join("g", version=3)  # it waits for the other members, for ten minutes
            until(
                lambda: idle.describe("g").groups[0].group_state == "PreparingRebalance",
                "the coordinator has the member",
            )
            broker.stop()
            assert member.receive().error_code == ErrorCode.NOT_COORDINATOR
            assert idle.closed_by_broker()
        assert "closing connections whose last request is not answered" not in broker.log_file.read_text()
