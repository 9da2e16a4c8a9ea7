"""Kafka's error codes: number, name, whether trying again can help, and what we say about each.

Constants; the names and numbers are Kafka 4.3's (`org.apache.kafka.common.protocol.Errors`).
"""

from __future__ import annotations

from enum import IntEnum

RETRIABLE = True
FINAL = False


class ErrorCode(IntEnum):
    """An error code as it stands on the wire (int16); `retriable` and `message` go with it."""

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool, message: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = -1, FINAL, "the broker failed in a way that no other code names"
    NONE = 0, FINAL, "no error"
    OFFSET_OUT_OF_RANGE = 1, FINAL, "the offset lies outside the partition's log"
    CORRUPT_MESSAGE = (
        2,
        RETRIABLE,
        "the record batch is damaged: its checksum, size or framing is wrong, or a key is missing where one is needed",
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, RETRIABLE, "this broker knows no such topic or partition"
    INVALID_FETCH_SIZE = 4, FINAL, "the fetch size is out of range"
    LEADER_NOT_AVAILABLE = 5, RETRIABLE, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, RETRIABLE, "this broker is neither leader nor follower of the partition"
    REQUEST_TIMED_OUT = 7, RETRIABLE, "the request's time ran out"
    BROKER_NOT_AVAILABLE = 8, FINAL, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, RETRIABLE, "the replica is not available"
    MESSAGE_TOO_LARGE = 10, FINAL, "the batch is larger than the topic or broker allows"
    STALE_CONTROLLER_EPOCH = 11, FINAL, "the controller has moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, FINAL, "the offset's metadata is longer than allowed"
    NETWORK_EXCEPTION = 13, RETRIABLE, "the connection broke before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, RETRIABLE, "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, RETRIABLE, "no coordinator is available"
    NOT_COORDINATOR = 16, RETRIABLE, "this broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, FINAL, "the topic's name is invalid, or records may not be written to this topic"
    RECORD_LIST_TOO_LARGE = 18, FINAL, "the batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, RETRIABLE, "fewer replicas are in sync than the topic asks for"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        RETRIABLE,
        "the records were written, but to fewer in-sync replicas than the topic asks for",
    )
    INVALID_REQUIRED_ACKS = 21, FINAL, "acks must be 0, 1 or -1"
    ILLEGAL_GENERATION = 22, FINAL, "the member's generation is not the group's"
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        FINAL,
        "the group's members have no protocol or protocol type in common with this one",
    )
    INVALID_GROUP_ID = 24, FINAL, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, FINAL, "the group has no such member"
    INVALID_SESSION_TIMEOUT = 26, FINAL, "the session timeout lies outside the broker's limits"
    REBALANCE_IN_PROGRESS = 27, FINAL, "the group is rebalancing"
    INVALID_COMMIT_OFFSET_SIZE = 28, FINAL, "the offset commit does not fit into one batch"
    TOPIC_AUTHORIZATION_FAILED = 29, FINAL, "not authorised for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, FINAL, "not authorised for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, FINAL, "not authorised for the cluster"
    INVALID_TIMESTAMP = 32, FINAL, "the record's timestamp is out of the allowed range"
    UNSUPPORTED_SASL_MECHANISM = 33, FINAL, "the SASL mechanism is not enabled here"
    ILLEGAL_SASL_STATE = 34, FINAL, "the SASL exchange does not allow this request now"
    UNSUPPORTED_VERSION = 35, FINAL, "the version of this API is not supported"
    TOPIC_ALREADY_EXISTS = 36, FINAL, "the topic exists already"
    INVALID_PARTITIONS = 37, FINAL, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, FINAL, "the replication factor is below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, FINAL, "the replica assignment is invalid"
    INVALID_CONFIG = 40, FINAL, "the configuration is invalid"
    NOT_CONTROLLER = 41, RETRIABLE, "this broker is not the controller"
    INVALID_REQUEST = 42, FINAL, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, FINAL, "the message format of the topic does not support this"
    POLICY_VIOLATION = 44, FINAL, "the request breaks a policy"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, FINAL, "the sequence number is not the one expected next"
    DUPLICATE_SEQUENCE_NUMBER = 46, FINAL, "the batch with this sequence number was already appended"
    INVALID_PRODUCER_EPOCH = 47, FINAL, "the producer's epoch is older than one already seen"
    INVALID_TXN_STATE = 48, FINAL, "the transaction's state does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 49, FINAL, "the producer id is not the one assigned to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, FINAL, "the transaction timeout is above the broker's limit"
    CONCURRENT_TRANSACTIONS = 51, RETRIABLE, "another operation on this transaction is under way"
    TRANSACTION_COORDINATOR_FENCED = 52, FINAL, "the markers' transaction coordinator is no longer the current one"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, FINAL, "not authorised for the transactional id"
    SECURITY_DISABLED = 54, FINAL, "security features are disabled"
    OPERATION_NOT_ATTEMPTED = 55, FINAL, "not attempted, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, RETRIABLE, "a log directory could not be read or written"
    LOG_DIR_NOT_FOUND = 57, FINAL, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, FINAL, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, FINAL, "nothing is known of this producer id any more"
    REASSIGNMENT_IN_PROGRESS = 60, FINAL, "the partition is being reassigned"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, FINAL, "delegation tokens are disabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, FINAL, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, FINAL, "the delegation token is another owner's"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, FINAL, "delegation tokens cannot be managed over this connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, FINAL, "not authorised for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, FINAL, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, FINAL, "principals of this type are not supported"
    NON_EMPTY_GROUP = 68, FINAL, "the group has members"
    GROUP_ID_NOT_FOUND = 69, FINAL, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, RETRIABLE, "there is no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, RETRIABLE, "the epoch of the fetch session is not the one expected"
    LISTENER_NOT_FOUND = 72, RETRIABLE, "the leader has no listener of the name that the request came by"
    TOPIC_DELETION_DISABLED = 73, FINAL, "deleting topics is disabled"
    FENCED_LEADER_EPOCH = 74, RETRIABLE, "the leader epoch of the request is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, RETRIABLE, "the leader epoch of the request is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, FINAL, "the compression type cannot be used with this version"
    STALE_BROKER_EPOCH = 77, FINAL, "the broker's epoch has changed"
    OFFSET_NOT_AVAILABLE = 78, RETRIABLE, "the new leader does not know the high watermark yet"
    MEMBER_ID_REQUIRED = 79, FINAL, "the member has to join again with the member id it was given"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, RETRIABLE, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, FINAL, "the group has as many members as allowed"
    FENCED_INSTANCE_ID = 82, FINAL, "another member joined with this instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, RETRIABLE, "no eligible leader is available"
    ELECTION_NOT_NEEDED = 84, RETRIABLE, "the partition has the right leader already"
    NO_REASSIGNMENT_IN_PROGRESS = 85, FINAL, "the partition is not being reassigned"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, FINAL, "a member of the group is subscribed to the topic"
    INVALID_RECORD = 87, FINAL, "a record failed validation"
    UNSTABLE_OFFSET_COMMIT = 88, RETRIABLE, "offsets of a transaction still under way hide the committed ones"
    THROTTLING_QUOTA_EXCEEDED = 89, RETRIABLE, "the quota for such changes is used up; try later"
    PRODUCER_FENCED = 90, FINAL, "a newer producer has the same transactional id"
    RESOURCE_NOT_FOUND = 91, FINAL, "there is no such resource"
    DUPLICATE_RESOURCE = 92, FINAL, "the resource exists already"
    UNACCEPTABLE_CREDENTIAL = 93, FINAL, "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, FINAL, "the set of voters is not the same on both sides"
    INVALID_UPDATE_VERSION = 95, FINAL, "the update's version is invalid"
    FEATURE_UPDATE_FAILED = 96, FINAL, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, FINAL, "the forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, FINAL, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, FINAL, "the position lies outside of the snapshot"
    UNKNOWN_TOPIC_ID = 100, RETRIABLE, "this broker knows no topic of this id"
    DUPLICATE_BROKER_REGISTRATION = 101, FINAL, "the broker's id is in use by another one"
    BROKER_ID_NOT_REGISTERED = 102, FINAL, "the broker's id is not registered"
    INCONSISTENT_TOPIC_ID = 103, RETRIABLE, "the log's topic id is not that of the request"
    INCONSISTENT_CLUSTER_ID = 104, FINAL, "the cluster's id is not that of the request"
    TRANSACTIONAL_ID_NOT_FOUND = 105, FINAL, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, RETRIABLE, "the fetch session mixes topic names and topic ids"
    INELIGIBLE_REPLICA = 107, FINAL, "the replica may not join the in-sync replicas"
    NEW_LEADER_ELECTED = 108, FINAL, "the change made another replica the leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, FINAL, "the offset is in tiered storage only"
    FENCED_MEMBER_EPOCH = 110, FINAL, "the member's epoch is not the group coordinator's; it has to join again"
    UNRELEASED_INSTANCE_ID = 111, FINAL, "the instance id is still another member's"
    UNSUPPORTED_ASSIGNOR = 112, FINAL, "no assignor in common"
    STALE_MEMBER_EPOCH = 113, FINAL, "the member's epoch is behind; it has to wait for its next heartbeat"
    MISMATCHED_ENDPOINT_TYPE = 114, FINAL, "the endpoint is of the other kind: brokers or controllers"
    UNSUPPORTED_ENDPOINT_TYPE = 115, FINAL, "endpoints of this kind are not supported"
    UNKNOWN_CONTROLLER_ID = 116, FINAL, "the controller's id is not known"
    UNKNOWN_SUBSCRIPTION_ID = 117, FINAL, "the telemetry subscription is not the current one"
    TELEMETRY_TOO_LARGE = 118, FINAL, "the telemetry is larger than allowed"
    INVALID_REGISTRATION = 119, FINAL, "the controller refuses the broker's registration"
    TRANSACTION_ABORTABLE = 120, FINAL, "the transaction cannot go on and has to be aborted"
    INVALID_RECORD_STATE = 121, FINAL, "the record's state does not allow this acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, RETRIABLE, "there is no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, RETRIABLE, "the epoch of the share session is not the one expected"
    FENCED_STATE_EPOCH = 124, FINAL, "the epoch of the share group's state is not the expected one"
    INVALID_VOTER_KEY = 125, FINAL, "the voter's key is not that of the receiver"
    DUPLICATE_VOTER = 126, FINAL, "the voter is already among the voters"
    VOTER_NOT_FOUND = 127, FINAL, "there is no such voter"
    INVALID_REGULAR_EXPRESSION = 128, FINAL, "the regular expression is invalid"
    REBOOTSTRAP_REQUIRED = 129, FINAL, "the client has to bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, FINAL, "the streams topology is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, FINAL, "the epoch of the streams topology is invalid"
    STREAMS_TOPOLOGY_FENCED = 132, FINAL, "the epoch of the streams topology is older than the group's"
    SHARE_SESSION_LIMIT_REACHED = 133, RETRIABLE, "as many share sessions as allowed are open"
