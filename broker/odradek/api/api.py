"""The declaration of an API: the only place for a fact about it. Each file of an API contains one, with the name `API`.

`make tables` collects the declarations of all files in `served.py` and `docs/reference/acls.md` (`reference.py`), so that no
process imports an API that it never executes. Beside `API`, the file of an API contains:

* `handle(request, call)`: executes the request and returns the response. The place determines the type of `call`, for example
  `CoordinatorCall`.
* `guard(asked)`: decides what the client may do (`guarding.py`); only if `API.guarded` is BY_GUARD.
* `refuse(request, version, code, message)`: the response that refuses the whole request, if `API.refused` cannot express it.
* `awaited(request, response)`: the topics that this broker must know before it sends the response; see `topics.topic_changes`.
* `at_once(request, view)`: serves the encoded request without a task if it can; only for GROUPS.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from odradek.api.elements import Elements
from odradek.protocol.schema import ApiSchema
from odradek.security.needs import Rights


class Place(Enum):
    """Where a request is executed."""

    NATIVE = "worker, native"
    WORKER = "worker"
    WORKER_THREAD = "worker, thread"  # a generator, each step of which may wait for the disk
    COORDINATOR = "coordinator"  # its store thread
    CONTROLLER = "coordinator, controller"  # as COORDINATOR; a broker that is not the controller refuses it
    REPLICAS = "coordinator, replicas"  # its replicas thread, in the order of arrival
    GROUPS = "coordinator, groups"  # its loop
    TRANSACTIONS = "coordinator, transactions"  # its loop, without a task for each request


class Guarded(Enum):
    """Who decides what a client may do."""

    BY_GUARD = "guard"
    NATIVE = "native code"
    INSIDE = "handler"  # it decides what the response contains, or the rights depend on more than the request
    FREE = "nobody"  # every client may use it


FORWARDED = (Place.COORDINATOR, Place.CONTROLLER, Place.REPLICAS, Place.GROUPS, Place.TRANSACTIONS)
"""The places of requests that workers forward to the coordinator."""

LONG_PATIENCE_S = 3600.0
MAX_REPLICAS = 16
"""Room for replicas in a slot of the shared table (MAX_IN_SYNC); a partition has at most MAX_FOLLOWERS and a leader, 13."""


class Api(NamedTuple):
    """See the module.

    :ivar versions: the first and the last version that is served; the schema may know others.
    :ivar place: where it is executed.
    :ivar elements: the largest number of elements in all arrays of a request together; with more, the connection is closed.
    :ivar per_partition: this many more elements for each partition that the broker may have (odradek.max.partitions): 1 if a
        request names topics, 2 if it names topics and partitions; more if it names replicas.
    :ivar patience_s: how long a worker waits for the coordinator's reply before it closes the connection. LONG_PATIENCE_S if it
        waits for other members of a group, and (by `reference.py`) if the request has a `timeout_ms`: the client decides then
        how long it waits, and closes the connection itself if it must.
    :ivar refused: where the response has the error if the whole request is refused: in these elements, or (None) in itself. An
        API with several forms of requests or responses has a mapping by the first version of each.
    :ivar repeated: brokers send the request again if the connection is closed. So an error of the store closes the connection,
        because a response with an error would say that nothing has happened.
    :ivar charged_from: the first version whose changes are refused when the client exceeds its quota for changes of topics;
        clients that send older versions are throttled. None: the quota does not apply.
    :ivar pipelined_from: the first version whose requests may be forwarded before earlier requests of the same connection are
        answered, because the coordinator executes and answers them in the order of arrival. None: no version.
    :ivar long_response: whether a short request may have a long response, which is then encoded in steps.
    :ivar needs_published: whether a broker in a cluster cannot answer before the controller has published brokers and
        partitions.
    :ivar only_in_cluster: whether a broker with the embedded metadata store does not serve the API.
    :ivar private: ApiVersions lists it only for Odradek's own clients, so that other clients receive no unknown API keys.
    """

    schema: ApiSchema
    versions: tuple[int, int]
    place: Place
    rights: Rights
    guarded: Guarded = Guarded.BY_GUARD
    elements: int = 10_000
    per_partition: int = 0
    patience_s: float = 30.0
    refused: Elements | Mapping[int, Elements | None] | None = None
    repeated: bool = False
    charged_from: int | None = None
    pipelined_from: int | None = None
    long_response: bool = False
    needs_published: bool = False
    only_in_cluster: bool = False
    private: bool = False

    @property
    def key(self) -> int:
        """The API key."""
        return self.schema.key
