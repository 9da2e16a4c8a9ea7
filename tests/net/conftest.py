"""What moves the records of TLS connections: tests that are about records run with both."""

import pytest

from odradek._ext.net.tls import allow_native


@pytest.fixture(scope="module", params=[True, False], ids=["openssl", "python"])
def tls_layer(request):
    """Whether OpenSSL itself moves records after the handshake, not Python's `ssl`. For whole modules, by `usefixtures`."""
    allow_native(request.param)
    yield request.param
    allow_native(True)
