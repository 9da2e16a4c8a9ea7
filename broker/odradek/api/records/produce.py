"""Produce (0): appends records. Executed by workers, in native code: `odradek._ext.api.produce`."""

from odradek.api.api import Api, Guarded, Place
from odradek.protocol.schemas import produce
from odradek.security.acl import Operation
from odradek.security.needs import ID_DENIED, OF_PARTITIONS, TOPIC, need

API = Api(
    produce.SCHEMA,
    versions=(0, 13),
    place=Place.NATIVE,
    rights=need(
        Operation.WRITE,
        TOPIC,
        OF_PARTITIONS,
        f"also WRITE on transactional id if a batch is transactional, else {ID_DENIED} for all partitions",
    ),
    guarded=Guarded.NATIVE,
)
