"""SaslHandshake (17): chooses a SASL mechanism.

0: the tokens follow without Kafka's framing. 1: they follow in SaslAuthenticate requests.
"""

from odradek.protocol.schema import api

API_KEY = 17

SCHEMA = api(
    API_KEY,
    "SaslHandshake",
    "0-1",
    flexible="none",
    request="""
    Mechanism  string  0+
    """,
    response="""
    ErrorCode   int16     0+
    Mechanisms  []string  0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
