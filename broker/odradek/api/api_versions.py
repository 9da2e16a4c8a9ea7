"""ApiVersions (18): the APIs and versions that this broker serves, from the table of APIs. Executed by workers."""

from typing import Any

from odradek.api.call import Call
from odradek.api.table import APIS, PRIVATE_APIS, in_cluster
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import api_versions

NAME_PATTERN_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")


OWN_SOFTWARE = "odradek"


def supported(error: ErrorCode = ErrorCode.NONE, own: bool = False, clustered: bool = False) -> Any:
    """The response that lists every API with its versions.

    :param own: whether the client belongs to this project; then the private APIs are listed, too.
    :param clustered: whether the broker is in a cluster; then the APIs between brokers are listed, too.
    """
    row_of = api_versions.Response.ApiVersion
    return api_versions.Response(
        error_code=error,
        api_keys=[
            row_of(api_key=row.key, min_version=row.min_version, max_version=row.max_version)
            for row in (APIS + PRIVATE_APIS if own else APIS)
            if row.served(clustered)
        ],
    )


def handle(request: Any, call: Call) -> Any:
    """Store the client's software name and version with its connection, and return the supported versions."""
    clustered = in_cluster(call.view.config)
    if call.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not text or not NAME_PATTERN_CHARS.issuperset(text) or text[0] in "-." or text[-1] in "-.":
                return supported(ErrorCode.INVALID_REQUEST, clustered=clustered)
        call.connection.runs(request.client_software_name, request.client_software_version)
        return supported(own=request.client_software_name == OWN_SOFTWARE, clustered=clustered)
    return supported(clustered=clustered)
