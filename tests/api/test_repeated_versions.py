"""ApiVersions requests that repeat an earlier one of the worker get the same response, until the levels of features change."""

import pytest

from odradek.api.cluster.api_versions import LONGEST_REPEATED, MOST_REPEATED, RepeatedRequests
from odradek.protocol.schemas import api_versions
from odradek.testing import Broker
from tests.sasl import versions_frame as versions
from tests.wire import Wire


class Connection:
    client_software_name, client_software_version = "x", "1"

    def __init__(self):
        self.noted = []

    def runs(self, name, version):
        self.noted.append((name, version))


class Levels:
    """A configuration with the epoch of the levels of features."""

    epoch = 1

    def integer(self, key):
        assert key == "odradek.features.epoch"
        return self.epoch


@pytest.fixture
def levels():
    return Levels()


RESPONSE = b"\0\0\0\7the levels"


@pytest.mark.parametrize(("version", "noted"), [(0, []), (3, [("x", "1")])])
def test_an_equal_request_gets_the_kept_response_with_its_own_correlation_id(levels, version, noted):
    repeated, frame, connection = RepeatedRequests(levels), versions(version), Connection()
    assert repeated.response(connection, frame) is None
    repeated.keep(connection, version, frame, RESPONSE)
    later = Connection()
    assert repeated.response(later, frame[:4] + b"\1\2\3\4" + frame[8:]) == b"\1\2\3\4the levels"
    assert later.noted == noted
    assert repeated.response(later, versions(version, "y") if version else versions(1)) is None


def test_changed_levels_forget_the_responses(levels):
    repeated, frame = RepeatedRequests(levels), versions(3)
    repeated.keep(Connection(), 3, frame, RESPONSE)
    levels.epoch = 2
    assert repeated.response(Connection(), frame) is None


def test_what_is_kept_is_bounded(levels):
    repeated = RepeatedRequests(levels)
    long = versions(3, "x" * LONGEST_REPEATED)
    repeated.keep(Connection(), 3, long, RESPONSE)
    assert repeated.response(Connection(), long) is None
    frames = [versions(3, f"x{number}") for number in range(MOST_REPEATED + 1)]
    for frame in frames:
        repeated.keep(Connection(), 3, frame, RESPONSE)
    assert [repeated.response(Connection(), frame) is None for frame in frames] == [True] * MOST_REPEATED + [False]


def test_a_repeated_request_is_answered_like_the_first():
    request = api_versions.Request(client_software_name="kafka-x", client_software_version="1")
    with Broker() as broker:
        responses = []
        for _ in range(6):  # more than there are workers
            with Wire.to(broker) as wire:
                responses += [wire.ask(request, api_versions.API_KEY, 3) for _ in range(2)]
        assert all(response == responses[0] for response in responses) and len(responses[0].api_keys) > 50
