"""ApiVersions (18): the APIs and versions that this broker serves, from the table of APIs, and the levels of the cluster's
features. Executed by workers."""

from typing import Any

from odradek._ext.protocol.encoder import encode
from odradek.api.api import Api, Guarded, Place
from odradek.api.call import Call, EncodedResponse
from odradek.api.table import APIS, PRIVATE_APIS
from odradek.config import features
from odradek.config.broker_config import BrokerConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import api_versions
from odradek.security.needs import (
    NOTHING,
)

NAME_PATTERN_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")
LONGEST_KEPT = 56  # characters of a software's name and version, as in the table of metrics

OWN_SOFTWARE = "odradek"
WITH_FEATURES = 3
FIRST_WITH_LOWEST_LEVEL_0 = 4
MOST_ENCODED = 64
MOST_REPEATED, LONGEST_REPEATED = 64, 256
"""The largest number of requests that `RepeatedRequests` keeps, and the largest size of one, in bytes."""
_BEFORE_CORRELATION, _AFTER_CORRELATION = 4, 8  # in a request; a response begins with the correlation id
API = Api(
    api_versions.SCHEMA,
    versions=(0, 4),
    place=Place.WORKER,
    rights=NOTHING,
    guarded=Guarded.FREE,
)


def supported(
    error: ErrorCode = ErrorCode.NONE,
    own: bool = False,
    clustered: bool = False,
    config: BrokerConfig | None = None,
    version: int = 0,
) -> Any:
    """The response that lists every API with its versions.

    :param own: whether the client belongs to this project; then the private APIs are listed, too.
    :param clustered: whether the broker is in a cluster; then the APIs between brokers are listed, too.
    :param config: the configuration, which has the levels of features; None: the response has no features.
    """
    row_of = api_versions.Response.ApiVersion
    response = api_versions.Response(
        error_code=error,
        api_keys=[
            row_of(api_key=row.key, min_version=row.min_version, max_version=row.max_version)
            for row in (APIS + PRIVATE_APIS if own else APIS)
            if row.served(clustered)
        ],
    )
    if config is not None and version >= WITH_FEATURES:
        _add_features(response, config, version)
    return response


def _add_features(response: Any, config: BrokerConfig, version: int) -> None:
    make = api_versions.Response
    response.supported_features = [
        make.SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
        for name, levels in features.SUPPORTED.items()
        if version >= FIRST_WITH_LOWEST_LEVEL_0 or levels.lowest > 0
    ]
    response.finalized_features_epoch = features.epoch(config)
    response.finalized_features = [
        make.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in features.finalized(config).items()
    ]


_encoded: dict[tuple[object, ...], EncodedResponse] = {}
"""By all that a response without errors depends on: each connection of most clients begins with this request."""


def _answer(version: int, own: bool, clustered: bool, config: BrokerConfig | None) -> EncodedResponse:
    levels = () if config is None else (features.epoch(config), *features.finalized(config).items())
    key = version, own, clustered, levels
    response = _encoded.get(key)
    if response is None:
        if len(_encoded) >= MOST_ENCODED:  # of former levels
            _encoded.clear()
        message = supported(own=own, clustered=clustered, config=config, version=version)
        response = _encoded[key] = EncodedResponse(bytes(encode(message, version)))
    return response


def handle(request: api_versions.Request, call: Call) -> Any:
    """Store the client's software name and version with its connection, and return the supported versions."""
    clustered = call.view.config.clustered
    if call.version < WITH_FEATURES:
        return _answer(call.version, False, clustered, None)
    for text in (request.client_software_name, request.client_software_version):
        if not text or not NAME_PATTERN_CHARS.issuperset(text) or text[0] in "-." or text[-1] in "-.":
            return supported(ErrorCode.INVALID_REQUEST, clustered=clustered)
    call.connection.runs(request.client_software_name[:LONGEST_KEPT], request.client_software_version[:LONGEST_KEPT])
    return _answer(call.version, request.client_software_name == OWN_SOFTWARE, clustered, call.view.config)


class RepeatedRequests:
    """A worker's responses to ApiVersions requests, by the request without its correlation id.

    A client begins each connection with an equal request, and the response depends only on the request and on the levels of
    features. Responses with an error are not kept.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._epoch = features.epoch(config)
        self._kept: dict[bytes, tuple[str | None, str | None, bytes]] = {}

    def response(self, connection: Any, frame: bytes) -> bytes | None:
        """The response that is kept for an equal request, or None. Stores the client's software as `handle` does."""
        if self._epoch != features.epoch(self._config):
            self._epoch = features.epoch(self._config)
            self._kept.clear()
        kept = self._kept.get(frame[:_BEFORE_CORRELATION] + frame[_AFTER_CORRELATION:])
        if kept is None:
            return None
        name, version, body = kept
        if name is not None:
            connection.runs(name, version)
        return frame[_BEFORE_CORRELATION:_AFTER_CORRELATION] + body

    def keep(self, connection: Any, version: int, frame: bytes, response: bytes) -> None:
        """Keep a response without an error, which `handle` has just made."""
        if len(frame) > LONGEST_REPEATED:
            return
        if len(self._kept) >= MOST_REPEATED:
            self._kept.clear()
        software = (connection.client_software_name, connection.client_software_version)
        name, release = software if version >= WITH_FEATURES else (None, None)
        body = response[_AFTER_CORRELATION - _BEFORE_CORRELATION :]
        self._kept[frame[:_BEFORE_CORRELATION] + frame[_AFTER_CORRELATION:]] = name, release, body
