"""Kafka's error codes: number, name, whether a retry can succeed, and a description.

Constants. The names and numbers are Kafka 4.3's (`org.apache.kafka.common.protocol.Errors`).
"""

from __future__ import annotations

from enum import IntEnum

RETRIABLE = True
FINAL = False


class ErrorCode(IntEnum):
    """An error code (int16 in the protocol), with `retriable` and a description, `message`."""

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool, message: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = -1, FINAL, "the broker failed with an unexpected error"
    NONE = 0, FINAL, "no error"
    OFFSET_OUT_OF_RANGE = 1, FINAL, "the offset is outside the log of the partition"
    CORRUPT_MESSAGE = (
        2,
        RETRIABLE,
        "the record batch is damaged: its checksum, size or framing is wrong, or a key is missing where one is needed",
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, RETRIABLE, "the topic or partition does not exist on this broker"
    INVALID_FETCH_SIZE = 4, FINAL, "the fetch size is out of range"
    LEADER_NOT_AVAILABLE = 5, RETRIABLE, "the partition currently has no leader"
    NOT_LEADER_OR_FOLLOWER = 6, RETRIABLE, "this broker is neither the leader nor a follower of the partition"
    REQUEST_TIMED_OUT = 7, RETRIABLE, "the request timed out"
    BROKER_NOT_AVAILABLE = 8, FINAL, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, RETRIABLE, "the replica is not available"
    MESSAGE_TOO_LARGE = 10, FINAL, "the batch is larger than the topic or the broker allows"
    STALE_CONTROLLER_EPOCH = 11, FINAL, "the controller has moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, FINAL, "the metadata of the offset is longer than offset.metadata.max.bytes"
    NETWORK_EXCEPTION = 13, RETRIABLE, "the connection was closed before the response"
    COORDINATOR_LOAD_IN_PROGRESS = 14, RETRIABLE, "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, RETRIABLE, "no coordinator is available"
    NOT_COORDINATOR = 16, RETRIABLE, "this broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, FINAL, "the topic name is invalid, or clients cannot write to this topic"
    RECORD_LIST_TOO_LARGE = 18, FINAL, "the batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, RETRIABLE, "fewer replicas are in sync than min.insync.replicas requires"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        RETRIABLE,
        "the records were written, but to fewer in-sync replicas than min.insync.replicas requires",
    )
    INVALID_REQUIRED_ACKS = 21, FINAL, "acks must be 0, 1 or -1"
    ILLEGAL_GENERATION = 22, FINAL, "the generation of the member is not the generation of the group"
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        FINAL,
        "the member has no protocol, or no protocol type, in common with the group",
    )
    INVALID_GROUP_ID = 24, FINAL, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, FINAL, "the member id is not in the group"
    INVALID_SESSION_TIMEOUT = 26, FINAL, "the session timeout is outside the limits of the broker"
    REBALANCE_IN_PROGRESS = 27, FINAL, "the group is rebalancing"
    INVALID_COMMIT_OFFSET_SIZE = 28, FINAL, "the offset commit does not fit into one batch"
    TOPIC_AUTHORIZATION_FAILED = 29, FINAL, "not authorised for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, FINAL, "not authorised for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, FINAL, "not authorised for the cluster"
    INVALID_TIMESTAMP = 32, FINAL, "the timestamp of the record is outside the allowed range"
    UNSUPPORTED_SASL_MECHANISM = 33, FINAL, "the SASL mechanism is not enabled"
    ILLEGAL_SASL_STATE = 34, FINAL, "the request is not allowed in the current state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, FINAL, "the version of this API is not supported"
    TOPIC_ALREADY_EXISTS = 36, FINAL, "the topic already exists"
    INVALID_PARTITIONS = 37, FINAL, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, FINAL, "the replication factor is below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, FINAL, "the replica assignment is invalid"
    INVALID_CONFIG = 40, FINAL, "the configuration is invalid"
    NOT_CONTROLLER = 41, RETRIABLE, "this broker is not the controller"
    INVALID_REQUEST = 42, FINAL, "the request is malformed or violates the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, FINAL, "the message format of the topic does not support this"
    POLICY_VIOLATION = 44, FINAL, "a policy refuses the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, FINAL, "the sequence number is not the next expected one"
    DUPLICATE_SEQUENCE_NUMBER = 46, FINAL, "the batch with this sequence number was already appended"
    INVALID_PRODUCER_EPOCH = 47, FINAL, "the epoch of the producer is older than the current epoch"
    INVALID_TXN_STATE = 48, FINAL, "the operation is not allowed in the current state of the transaction"
    INVALID_PRODUCER_ID_MAPPING = 49, FINAL, "the producer id is not the one assigned to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, FINAL, "the transaction timeout is above the broker's limit"
    CONCURRENT_TRANSACTIONS = 51, RETRIABLE, "another operation on this transaction is in progress"
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        FINAL,
        "the transaction coordinator that sent the markers is no longer the current one",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, FINAL, "not authorised for the transactional id"
    SECURITY_DISABLED = 54, FINAL, "security features are disabled"
    OPERATION_NOT_ATTEMPTED = 55, FINAL, "not attempted, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, RETRIABLE, "a log directory could not be read or written"
    LOG_DIR_NOT_FOUND = 57, FINAL, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, FINAL, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, FINAL, "the state of this producer id has been removed"
    REASSIGNMENT_IN_PROGRESS = 60, FINAL, "the partition is being reassigned"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, FINAL, "delegation tokens are disabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, FINAL, "the delegation token does not exist"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, FINAL, "the delegation token belongs to another owner"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, FINAL, "delegation tokens cannot be managed over this connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, FINAL, "not authorised for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, FINAL, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, FINAL, "principals of this type are not supported"
    NON_EMPTY_GROUP = 68, FINAL, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, FINAL, "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, RETRIABLE, "the fetch session does not exist"
    INVALID_FETCH_SESSION_EPOCH = 71, RETRIABLE, "the epoch of the fetch session is not the expected one"
    LISTENER_NOT_FOUND = (
        72,
        RETRIABLE,
        "the leader has no listener with the name of the listener that received the request",
    )
    TOPIC_DELETION_DISABLED = 73, FINAL, "the deletion of topics is disabled"
    FENCED_LEADER_EPOCH = 74, RETRIABLE, "the leader epoch in the request is older than that of the broker"
    UNKNOWN_LEADER_EPOCH = 75, RETRIABLE, "the leader epoch in the request is newer than that of the broker"
    UNSUPPORTED_COMPRESSION_TYPE = 76, FINAL, "the compression type cannot be used with this version"
    STALE_BROKER_EPOCH = 77, FINAL, "the broker epoch is out of date"
    OFFSET_NOT_AVAILABLE = 78, RETRIABLE, "the new leader does not know the high watermark yet"
    MEMBER_ID_REQUIRED = 79, FINAL, "the member must join again with the member id in the response"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, RETRIABLE, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, FINAL, "the group has reached its maximum number of members"
    FENCED_INSTANCE_ID = 82, FINAL, "another member joined with this instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, RETRIABLE, "no eligible leader is available"
    ELECTION_NOT_NEEDED = 84, RETRIABLE, "the partition already has the requested leader"
    NO_REASSIGNMENT_IN_PROGRESS = 85, FINAL, "the partition is not being reassigned"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, FINAL, "a member of the group is subscribed to the topic"
    INVALID_RECORD = 87, FINAL, "a record failed validation"
    UNSTABLE_OFFSET_COMMIT = 88, RETRIABLE, "the group has offsets of a transaction that is still in progress"
    THROTTLING_QUOTA_EXCEEDED = 89, RETRIABLE, "the quota for these changes is exceeded; retry later"
    PRODUCER_FENCED = 90, FINAL, "a newer producer has the same transactional id"
    RESOURCE_NOT_FOUND = 91, FINAL, "the resource does not exist"
    DUPLICATE_RESOURCE = 92, FINAL, "the resource already exists"
    UNACCEPTABLE_CREDENTIAL = 93, FINAL, "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, FINAL, "the two sides have different sets of voters"
    INVALID_UPDATE_VERSION = 95, FINAL, "the version of the update is invalid"
    FEATURE_UPDATE_FAILED = 96, FINAL, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, FINAL, "the forwarded principal cannot be decoded"
    SNAPSHOT_NOT_FOUND = 98, FINAL, "the snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, FINAL, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, RETRIABLE, "the topic id does not exist on this broker"
    DUPLICATE_BROKER_REGISTRATION = 101, FINAL, "another broker uses this broker id"
    BROKER_ID_NOT_REGISTERED = 102, FINAL, "the broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, RETRIABLE, "the topic id of the log differs from the topic id in the request"
    INCONSISTENT_CLUSTER_ID = 104, FINAL, "the cluster id differs from the cluster id in the request"
    TRANSACTIONAL_ID_NOT_FOUND = 105, FINAL, "the transactional id does not exist"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, RETRIABLE, "the fetch session mixes topic names and topic ids"
    INELIGIBLE_REPLICA = 107, FINAL, "the replica cannot join the in-sync replicas"
    NEW_LEADER_ELECTED = 108, FINAL, "the change made another replica the leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, FINAL, "the offset is in tiered storage only"
    FENCED_MEMBER_EPOCH = (
        110,
        FINAL,
        "the epoch of the member differs from that of the coordinator; the member must join again",
    )
    UNRELEASED_INSTANCE_ID = 111, FINAL, "another member still uses the instance id"
    UNSUPPORTED_ASSIGNOR = 112, FINAL, "the group coordinator does not support the assignor"
    STALE_MEMBER_EPOCH = (
        113,
        FINAL,
        "the epoch of the member is out of date; the member must wait for its next heartbeat",
    )
    MISMATCHED_ENDPOINT_TYPE = 114, FINAL, "the request was sent to the wrong kind of endpoint (broker or controller)"
    UNSUPPORTED_ENDPOINT_TYPE = 115, FINAL, "endpoints of this kind are not supported"
    UNKNOWN_CONTROLLER_ID = 116, FINAL, "the controller id is unknown"
    UNKNOWN_SUBSCRIPTION_ID = 117, FINAL, "the telemetry subscription is not the current one"
    TELEMETRY_TOO_LARGE = 118, FINAL, "the telemetry is larger than allowed"
    INVALID_REGISTRATION = 119, FINAL, "the controller refuses the broker's registration"
    TRANSACTION_ABORTABLE = 120, FINAL, "the transaction cannot continue and must be aborted"
    INVALID_RECORD_STATE = 121, FINAL, "the acknowledgement is not allowed in the current state of the record"
    SHARE_SESSION_NOT_FOUND = 122, RETRIABLE, "the share session does not exist"
    INVALID_SHARE_SESSION_EPOCH = 123, RETRIABLE, "the epoch of the share session is not the expected one"
    FENCED_STATE_EPOCH = 124, FINAL, "the epoch of the share group's state is not the expected one"
    INVALID_VOTER_KEY = 125, FINAL, "the voter key differs from the key of the receiver"
    DUPLICATE_VOTER = 126, FINAL, "the voter is already among the voters"
    VOTER_NOT_FOUND = 127, FINAL, "the voter does not exist"
    INVALID_REGULAR_EXPRESSION = 128, FINAL, "the regular expression is invalid"
    REBOOTSTRAP_REQUIRED = 129, FINAL, "the client must bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, FINAL, "the streams topology is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, FINAL, "the epoch of the streams topology is invalid"
    STREAMS_TOPOLOGY_FENCED = 132, FINAL, "the epoch of the streams topology is older than the group's"
    SHARE_SESSION_LIMIT_REACHED = 133, RETRIABLE, "the maximum number of share sessions is open"


_BY_NUMBER = {int(code): code for code in ErrorCode}


def known_error(code: int) -> ErrorCode | None:
    """The error with this number; None if it has no name here."""
    return _BY_NUMBER.get(code)


def error_of(code: int) -> ErrorCode:
    """The error with this number; UNKNOWN_SERVER_ERROR for a number without a name."""
    return _BY_NUMBER.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def peer_error_text(code: int) -> str:
    """The name of an error that another broker returned to this one, with what to do if it may not act as a broker."""
    if code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        return (
            f"{error_text(code)} (the principal of this broker must be one of super.users of the other broker, or have an ACL "
            "for CLUSTER_ACTION on the cluster)"
        )
    return error_text(code)


def error_text(code: int) -> str:
    """The name of an error, for log messages; "error N" if it has none here."""
    error = known_error(code)
    return f"error {code}" if error is None else error.name
