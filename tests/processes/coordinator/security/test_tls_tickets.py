"""The keys of session tickets: workers share them, and they are replaced."""

import ssl

import pytest

from odradek.config.broker_config import load
from odradek.config.listeners import Listener
from odradek.net.tls_listeners import TlsListeners
from odradek.processes.coordinator.security.tls_reload import TICKETS_S, TlsReload
from odradek.shm.published_tls import PublishedTls, ticket_keys
from tests.certificates import client_context, material

LISTENER = Listener("TLS", "localhost", 0, "SSL")


class Worker:
    """The listeners of one worker process."""

    def __init__(self, published: PublishedTls) -> None:
        self.tls = TlsListeners(published)
        self.tls.take_over()

    def session(
        self, context: ssl.SSLContext, former: ssl.SSLSession | None = None
    ) -> tuple[ssl.SSLSession | None, bool]:
        """The session of a client of this worker, and whether it resumed `former`."""
        (listener,) = self.tls.in_order([LISTENER])
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(to_client, to_server, server_hostname="localhost", session=former)
        server = listener.context.wrap_bio(to_server, to_client, server_side=True)
        for end in (client, server, client, server, client):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
        server.write(b"x")
        assert client.read(1) == b"x"  # with TLS 1.3, the ticket has come before it
        return client.session, bool(client.session_reused)


@pytest.fixture
def published():
    published = PublishedTls()
    published.publish({"TLS": material()})
    return published


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_by_another_worker_until_the_keys_are_replaced(published, version):
    now, woken = [1000.0], []
    reload = TlsReload(published, load(None), lambda: woken.append(published.version), clock=lambda: now[0])
    context = client_context(version)
    one, other = Worker(published), Worker(published)
    session, _ = one.session(context)
    assert other.session(context, session)[1]
    now[0] += TICKETS_S - 1
    reload.look()
    assert not other.tls.changed and woken == []
    now[0] += 1
    reload.look()
    assert other.tls.changed and woken == [2]
    reload.look()
    assert woken == [2]
    for worker in (one, other):
        worker.tls.take_over()
        assert not worker.session(context, session)[1]
    session, _ = one.session(context)
    assert other.session(context, session)[1]


def test_each_listener_and_each_publication_has_its_own_keys(published):
    secrets = [published.read_with_tickets()[2]]
    published.publish(published.read()[1])
    secrets.append(published.read_with_tickets()[2])
    assert len({ticket_keys(secret, name) for secret in secrets for name in ("A", "B")}) == 4
