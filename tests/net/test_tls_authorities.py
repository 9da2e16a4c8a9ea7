"""A listener that asks for certificates names the authorities that it trusts: Java clients choose their key by them."""

import shutil
import socket
import subprocess
import threading

import pytest

from odradek.security.contexts import server_context
from tests.certificates import material
from tests.net.tls_driver import TlsDriver, tls_listener

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
HEAD = "Acceptable client certificate CA names"


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize("client_auth", ["none", "requested"])
def test_the_authorities_are_named_if_certificates_are_asked_for(version, client_auth):
    of_listener = material(client_auth)
    (trusted,) = server_context(material("requested")).get_ca_certs()
    names = [value for part in trusted["subject"] for _, value in part]
    driver = TlsDriver(listener=tls_listener(of_listener))
    output = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with subprocess.Popen(
            ["openssl", "s_client", version, "-connect", address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ) as client:  # fmt: skip
            accepted, _ = server.accept()
            accepted.setblocking(False)
            driver.loop.add(accepted.detach(), 1, 0, "client")
            driver.until(lambda: driver.loop.connections.unauthenticated_count == 0)
            reader = threading.Thread(target=lambda: output.extend(iter(client.stdout.readline, "")))
            reader.start()
            client.stdin.close()  # s_client ends
            driver.until(lambda: driver.closed_ids)
            reader.join(60)
    driver.close()
    text = "".join(output)
    assert "SSL handshake has read" in text
    if client_auth == "none":
        assert HEAD not in text
    else:
        listed = text.partition(HEAD)[2].splitlines()[1]
        assert all(name in listed for name in names)
