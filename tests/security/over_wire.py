"""Clients whose rights differ by their address: the loopback network has many, and ACLs name hosts.

The host ADMIN may do everything; a test gives ACLs to the host CLIENT. All clients are User:ANONYMOUS. Works with this broker
and with Kafka.
"""

import socket
from collections.abc import Iterable
from typing import Any

from odradek.protocol.schemas import create_acls, delete_acls, describe_acls
from odradek.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from tests.api.group_talk import GroupTalk
from tests.wire import TIMEOUT_S

ADMIN, CLIENT, OTHER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CONFIG = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
"""Everybody may do everything until the first ACL: so a test can make the ACLs of ADMIN."""
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXN = ResourceType.TRANSACTIONAL_ID
CLUSTER_NAME = "kafka-cluster"


def acl(
    resource_type: int,
    name: str,
    operation: int,
    *,
    host: str = CLIENT,
    principal: str = "User:ANONYMOUS",
    permission: int = Permission.ALLOW,
    pattern: int = PatternType.LITERAL,
) -> Acl:
    """An ACL for the client."""
    return Acl(resource_type, pattern, name, principal, host, operation, permission)


ACLS_OF_ADMIN = [
    acl(kind, name, Operation.ALL, host=ADMIN, principal="User:*")
    for kind, name in ((TOPIC, "*"), (GROUP, "*"), (TXN, "*"), (CLUSTER, CLUSTER_NAME))
]


class Client(GroupTalk):
    """A connection from an address."""

    def __init__(self, at: Any, host: str = CLIENT) -> None:
        address = (at.host, at.port) if hasattr(at, "host") else ("127.0.0.1", at.port)
        connected = socket.create_connection(address, timeout=TIMEOUT_S, source_address=(host, 0))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(TIMEOUT_S)
        self._take(connected)

    def create_acls(self, acls: Iterable[Acl], version: int = 3) -> list[int]:
        """CreateAcls; the error codes."""
        make = create_acls.Request
        request = make(
            creations=[
                make.AclCreation(
                    resource_type=one.resource_type,
                    resource_name=one.name,
                    resource_pattern_type=one.pattern_type,
                    principal=one.principal,
                    host=one.host,
                    operation=one.operation,
                    permission_type=one.permission,
                )
                for one in acls
            ]
        )
        return [result.error_code for result in self.ask(request, create_acls.API_KEY, version).results]

    def delete_acls(self, *filters: AclFilter, version: int = 3) -> Any:
        """DeleteAcls; the results of the filters."""
        make = delete_acls.Request
        request = make(
            filters=[
                make.DeleteAclsFilter(
                    resource_type_filter=one.resource_type,
                    resource_name_filter=one.name,
                    pattern_type_filter=one.pattern_type,
                    principal_filter=one.principal,
                    host_filter=one.host,
                    operation=one.operation,
                    permission_type=one.permission,
                )
                for one in filters
            ]
        )
        return self.ask(request, delete_acls.API_KEY, version).filter_results

    def described_acls(self, wanted: AclFilter | None = None, version: int = 3) -> Any:
        """DescribeAcls; the response."""
        one = wanted or AclFilter()
        request = describe_acls.Request(
            resource_type_filter=one.resource_type,
            resource_name_filter=one.name,
            pattern_type_filter=one.pattern_type,
            principal_filter=one.principal,
            host_filter=one.host,
            operation=one.operation,
            permission_type=one.permission,
        )
        return self.ask(request, describe_acls.API_KEY, version)

    def acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """DescribeAcls; the ACLs, sorted."""
        response = self.described_acls(wanted)
        assert response.error_code == 0, response
        return sorted(
            Acl(
                resource.resource_type,
                resource.pattern_type,
                resource.resource_name,
                one.principal,
                one.host,
                one.operation,
                one.permission_type,
            )
            for resource in response.resources
            for one in resource.acls
        )

    def set_acls(self, acls: Iterable[Acl]) -> None:
        """Replace all ACLs except those of the admin."""
        wanted = set(acls)
        present = set(self.acls()) - set(ACLS_OF_ADMIN)
        gone = [AclFilter(*one) for one in sorted(present - wanted)]
        if gone:
            assert all(result.error_code == 0 for result in self.delete_acls(*gone))
        new = sorted(wanted - present)
        if new:
            assert set(self.create_acls(new)) == {0}
