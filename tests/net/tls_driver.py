"""A DataLoop with TLS listeners, and clients that speak TLS over the driver's sockets without threads."""

import contextlib
import select
import ssl
import threading

from tlslite.handshakesettings import HandshakeSettings
from tlslite.tlsconnection import TLSConnection

from odradek._ext.net.tls import TlsListener
from odradek.security.contexts import server_context
from odradek.security.principal import mapper
from tests.certificates import client_context, material
from tests.net.connection_driver import PATIENCE_S, Driver


def tls_listener(of_listener=None):
    of_listener = of_listener or material()
    return TlsListener(
        server_context(of_listener),
        authenticates=of_listener.authenticates,
        principal_of=None if of_listener.client_auth == "none" else mapper(of_listener.rules),
        slow_key=of_listener.slow,
    )


class TlsDriver(Driver):
    """Its first listener uses TLS. :param listener: a TlsListener; None: one without client certificates.

    The thread that computes handshakes is the test itself: `settle` runs the steps while `working` is set, and so does `work`.
    """

    def __init__(self, handler=None, listener=None, **settings):
        super().__init__(handler, **settings)
        self.failures = []
        self.loop.connections.failure_log = self._note
        self.loop.use_tls([listener or tls_listener()])
        self.jobs = []
        self.worked = 0
        self.working = True
        self.loop.receiver.handshake_thread = lambda step, done, slow: self.jobs.append((step, done))

    def _note(self, peer, text):
        self.failures.append(text)
        return

    def work(self):
        """Run the steps of handshakes that wait for the thread."""
        jobs, self.jobs = self.jobs, []
        for step, done in jobs:
            self.worked += 1
            assert step() is False
            done(None)

    def settle(self):
        turns = super().settle()
        while self.jobs and self.working:
            self.work()
            turns += super().settle()
        return turns

    def until(self, condition):
        """Turns until a condition holds."""
        while not condition():
            if self.jobs and self.working:
                self.work()
            else:
                assert self.turn(), "no event came within the patience"

    def tls_client(self, context=None, handshake=True, **how):
        """A connected TlsClient, after its handshake."""
        sock, connection = self.connect(**how)
        client = TlsClient(self, sock, connection, context or client_context())
        if handshake:
            client.handshake()
        return client


class TlsClient:
    """A client of a TlsDriver: `send` and `receive` plaintext. `outgoing` holds records that are not sent yet."""

    def __init__(self, driver, sock, connection, context):
        self.driver, self.socket, self.connection = driver, sock, connection
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.ended = False

    def handshake(self):
        self.send_raw(self.end_of_handshake())
        self.driver.settle()

    def end_of_handshake(self):
        """The client's last records of a handshake, which are not sent yet."""
        while True:
            try:
                self.tls.do_handshake()
                return self.outgoing.read()
            except ssl.SSLWantReadError:
                self.flush()
                self.pull()

    def encrypt(self, data):
        """The records for `data`, which are not sent."""
        self.tls.write(data)
        return self.outgoing.read()

    def send(self, data):
        self.tls.write(data)
        self.flush()

    def flush(self):
        self.send_raw(self.outgoing.read())

    def send_raw(self, data):
        """Send bytes as they are; the driver works meanwhile if the socket is full."""
        view = memoryview(data)
        self.socket.setblocking(False)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                self.driver.settle()
        self.socket.settimeout(PATIENCE_S)

    def pull(self):
        """Receive some bytes from the broker, which is driven meanwhile. Returns False at the end of the stream."""
        ready = select.poll()
        ready.register(self.socket, select.POLLIN)
        ready.register(self.driver.loop.fileno(), select.POLLIN)
        while True:
            self.driver.settle()
            self.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                data = self.socket.recv(1 << 20)
                if not data:
                    self.ended = True
                    self.incoming.write_eof()
                    return False
                self.incoming.write(data)
                return True
            assert ready.poll(PATIENCE_S * 1000), "nothing came from the broker within the patience"

    def receive(self, n):
        """`n` bytes of plaintext, or less if the stream ends with close_notify before."""
        received = bytearray()
        while len(received) < n:
            try:
                part = self.tls.read(n - len(received))
            except ssl.SSLWantReadError:
                self.pull()
                continue
            except ssl.SSLZeroReturnError:
                break
            if not part:
                break
            received += part
        return bytes(received)


def tlslite_client(driver, **how):
    """A client whose records the test can choose. It needs a thread, because it blocks during the handshake."""
    sock, connection = driver.connect(**how)
    client = TLSConnection(sock)
    wanted = HandshakeSettings()
    wanted.minVersion = wanted.maxVersion = (3, 4)
    thread = threading.Thread(target=client.handshakeClientCert, kwargs={"settings": wanted})
    thread.start()
    driver.until(lambda: not thread.is_alive() or driver.loop.connections.unauthenticated_count == 0)
    thread.join()
    return client, connection
