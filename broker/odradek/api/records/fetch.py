"""Fetch (1): reads records. Executed by workers, in native code: `odradek._ext.api.fetch`."""

from odradek.api.api import Api, Guarded, Place
from odradek.protocol.schemas import fetch
from odradek.security.acl import Operation
from odradek.security.needs import OF_PARTITIONS, TOPIC, need

API = Api(
    fetch.SCHEMA,
    versions=(0, 18),
    place=Place.NATIVE,
    rights=need(Operation.READ, TOPIC, OF_PARTITIONS, "followers: CLUSTER_ACTION on cluster instead"),
    guarded=Guarded.NATIVE,
)
