"""The error codes of a response: decoded, and encoded, as needed to count errors of forwarded requests."""

import pytest

from odradek._ext.protocol.encoder import encode
from odradek.api.answer_errors import errors_of
from odradek.api.api import FORWARDED
from odradek.api.pipeline import frame_response
from odradek.api.table import BY_KEY
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import (
    add_partitions_to_txn,
    create_topics,
    describe_configs,
    leave_group,
    metadata,
    offset_commit,
)


def top_level_error(api_key: int, version: int, response: bytes) -> int:
    """What stands there, as a worker reads it; 0 where nothing is known of it."""
    position = BY_KEY[api_key].error[version - BY_KEY[api_key].min_version]
    return int.from_bytes(response[position : position + 2], "big", signed=True) if position >= 0 else 0


KNOWN = [row.key for row in BY_KEY.values() if row.leads_with_error and row.place in FORWARDED]


@pytest.mark.parametrize("key", KNOWN)
def test_the_error_code_is_found_in_every_version(key: int) -> None:
    row = BY_KEY[key]
    for version in range(row.min_version, row.max_version + 1):
        for code in (0, 27, -1):
            response = by_key(key).response(error_code=code)
            assert top_level_error(key, version, frame_response(row, version, 7, response)) == code
            assert len(encode(response, version)) >= 2


def test_other_responses_have_no_code_at_a_fixed_position() -> None:
    assert top_level_error(19, 5, b"\0" * 40) == 0


def test_all_codes_of_a_response_are_found_its_own_first() -> None:
    make = leave_group.Response
    members = [make.MemberResponse(error_code=code) for code in (0, 25, 82)]
    assert errors_of(13, make(error_code=16, members=members)) == [16, 25, 82]
    assert errors_of(13, make()) == []


def test_codes_of_topics_partitions_and_resources_are_found() -> None:
    of_topic = create_topics.Response.CreatableTopicResult
    assert errors_of(19, create_topics.Response(topics=[of_topic(error_code=code) for code in (36, 0, 17)])) == [36, 17]
    resource = describe_configs.Response.DescribeConfigsResult
    assert errors_of(32, describe_configs.Response(results=[resource(error_code=40)])) == [40]
    topic, partition = metadata.Response.MetadataResponseTopic, metadata.Response.MetadataResponsePartition
    partitions = [partition(error_code=code) for code in (0, 5)]
    assert errors_of(3, metadata.Response(topics=[topic(partitions=partitions), topic(error_code=3)])) == [3]
    of_commit = offset_commit.Response.OffsetCommitResponseTopic
    parts = [offset_commit.Response.OffsetCommitResponsePartition(error_code=code) for code in (0, 22)]
    assert errors_of(8, offset_commit.Response(topics=[of_commit(partitions=parts), of_commit()])) == [22]


def test_codes_of_partitions_that_are_added_to_transactions_are_found() -> None:
    make = add_partitions_to_txn.Response
    parts = [make.AddPartitionsToTxnPartitionResult(partition_error_code=code) for code in (0, 90)]
    topics = [make.AddPartitionsToTxnTopicResult(results_by_partition=parts)]
    assert errors_of(24, make(results_by_topic_v3_and_below=topics)) == [90]
    results = [make.AddPartitionsToTxnResult(topic_results=topics)]
    assert errors_of(24, make(error_code=31, results_by_transaction=results)) == [31, 90]


def test_a_null_array_contains_no_error() -> None:
    topic = metadata.Response.MetadataResponseTopic(error_code=3)
    topic.partitions = None
    assert errors_of(3, metadata.Response(topics=[topic])) == [3]


def test_a_worker_sees_the_first_code_of_the_group_requests_and_of_no_admin_request() -> None:
    assert [BY_KEY[key].leads_with_error for key in (13, 12, 19, 8)] == [True, True, False, False]
