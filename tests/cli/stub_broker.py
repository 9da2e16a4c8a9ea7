"""A broker of one process that answers the requests of commands from attributes, and does not answer chosen APIs.
For states in which a real broker stays only for a moment, and for requests that time out."""

import struct

from odradek.clients.topics import EARLIEST
from odradek.protocol import decode, encode_frame, registry
from odradek.protocol.schemas import (
    api_versions,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    list_transactions,
    metadata,
    write_txn_markers,
)
from odradek.protocol.schemas.header import ResponseHeader, decode_request_header, response_header_version
from tests.threaded_server import ThreadedServer
from tests.wire import batch

BROKER_ID = 1
TOPIC = "t"
READ_COMMITTED = 1
COORDINATOR_EPOCH = 5
"""The leader epoch of the only partition of __transaction_state."""
APIS = (
    api_versions,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    list_transactions,
    metadata,
    write_txn_markers,
)


class StubBroker:
    """A broker with the topic t, which listens while the context is entered.

    :param partitions: the number of partitions of t; each has one record, at offset 0.
    :ivar last_stable_offset: of the partitions of t.
    :ivar silent: names of the APIs whose requests get no response. :ivar asked: names of the APIs that were requested.
    :ivar before: name of an API to a function that is called before its requests are answered.
    :ivar producers: partition to a list of describe_producers.Response.ProducerState.
    :ivar ids: transactional id to its describe_transactions.Response.TransactionState.
    """

    def __init__(self, partitions=1):
        self.partitions = partitions
        self.last_stable_offset = 0
        self.silent = set()
        self.asked = []
        self.before = {}
        self.producers = {}
        self.ids = {}

    def __enter__(self):
        self._server = ThreadedServer(self._serve)
        self.address = f"127.0.0.1:{self._server.port}"
        return self

    def __exit__(self, *_):
        self._server.close()

    def _serve(self, connection, _):
        with connection.makefile("rb") as stream:
            while size := stream.read(4):
                data = stream.read(*struct.unpack(">i", size))
                header, at = decode_request_header(data)
                api, version = registry.by_key(header.request_api_key), header.request_api_version
                request, _ = decode(api.request, version, data, at)
                self.asked.append(api.name)
                self.before.get(api.name, lambda: None)()
                if api.name in self.silent:
                    continue
                response = getattr(self, f"_{api.request.__module__.rpartition('.')[2]}")(request)
                answer = ResponseHeader(correlation_id=header.correlation_id)
                connection.sendall(encode_frame(answer, response_header_version(api.key, version), response, version))

    def _api_versions(self, _):
        make = api_versions.Response
        keys = [
            make.ApiVersion(api_key=api.API_KEY, min_version=api.SCHEMA.min_version, max_version=api.SCHEMA.max_version)
            for api in APIS
        ]
        return make(api_keys=keys)

    def _metadata(self, _):
        make = metadata.Response
        host, _, port = self.address.rpartition(":")

        def topic(name, count, epoch):
            only = {
                "leader_id": BROKER_ID,
                "leader_epoch": epoch,
                "replica_nodes": [BROKER_ID],
                "isr_nodes": [BROKER_ID],
            }
            partitions = [make.MetadataResponsePartition(partition_index=number, **only) for number in range(count)]
            return make.MetadataResponseTopic(name=name, partitions=partitions)

        return make(
            brokers=[make.MetadataResponseBroker(node_id=BROKER_ID, host=host, port=int(port))],
            controller_id=BROKER_ID,
            topics=[topic(TOPIC, self.partitions, 0), topic("__transaction_state", 1, COORDINATOR_EPOCH)],
        )

    def _describe_log_dirs(self, _):
        return describe_log_dirs.Response()

    def _find_coordinator(self, request):
        make = find_coordinator.Response
        return make(
            coordinators=[make.Coordinator(key=key, node_id=BROKER_ID) for key in request.coordinator_keys],
        )

    def _end(self, topic, isolation_level):
        if topic != TOPIC:
            return 0
        return self.last_stable_offset if isolation_level == READ_COMMITTED else 1

    def _fetch(self, request):
        make = fetch.Response

        def partition(part, end):
            return make.PartitionData(
                partition_index=part.partition,
                high_watermark=1,
                last_stable_offset=self.last_stable_offset,
                records=batch(b"v") if part.fetch_offset < end else b"",
            )

        return make(
            responses=[
                make.FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        partition(part, self._end(topic.topic, request.isolation_level)) for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _list_offsets(self, request):
        make = list_offsets.Response
        return make(
            topics=[
                make.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        make.ListOffsetsPartitionResponse(
                            partition_index=part.partition_index,
                            offset=0 if part.timestamp == EARLIEST else self._end(topic.name, request.isolation_level),
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _describe_configs(self, request):
        make = describe_configs.Response
        return make(
            results=[
                make.DescribeConfigsResult(resource_type=each.resource_type, resource_name=each.resource_name)
                for each in request.resources
            ]
        )

    def _describe_producers(self, request):
        make = describe_producers.Response
        return make(
            topics=[
                make.TopicResponse(
                    name=topic.name,
                    partitions=[
                        make.PartitionResponse(partition_index=number, active_producers=self.producers.get(number, []))
                        for number in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def _list_transactions(self, request):
        make = list_transactions.Response
        return make(
            transaction_states=[
                make.TransactionState(
                    transactional_id=name, producer_id=state.producer_id, transaction_state=state.transaction_state
                )
                for name, state in self.ids.items()
                if not request.producer_id_filters or state.producer_id in request.producer_id_filters
            ]
        )

    def _describe_transactions(self, request):
        return describe_transactions.Response(transaction_states=[self.ids[name] for name in request.transactional_ids])

    def _init_producer_id(self, _):
        return init_producer_id.Response(producer_id=0, producer_epoch=1)

    def _write_txn_markers(self, request):
        make = write_txn_markers.Response
        return make(
            markers=[
                make.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        make.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                make.WritableTxnMarkerPartitionResult(partition_index=number)
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )
