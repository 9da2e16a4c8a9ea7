"""Connections to a real ZooKeeper with credentials, ACLs and TLS, from the broker's settings."""

import subprocess
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from odradek.config.broker_config import load
from odradek.metadata.store import StoreError, StoreUnavailable
from odradek.metadata.zookeeper import open_zookeeper
from tests.toolchains import require_command, unavailable
from tests.zookeeper import ZookeeperServer, chroot, shared_server

pytestmark = pytest.mark.peer

IDENTITY = {"odradek.zookeeper.username": "alice", "odradek.zookeeper.password": "secret"}


@contextmanager
def opened(servers, **settings):
    names = {"zookeeper.connect": servers, "zookeeper.connection.timeout.ms": "20000"}
    names |= {name.replace("_", "."): value for name, value in settings.items()}
    store = open_zookeeper(load(None, [f"{name}={value}" for name, value in names.items()]))
    try:
        yield store
    finally:
        store.close()


@contextmanager
def stranger(servers):
    """A client without credentials."""
    client = KazooClient(servers)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def servers():
    return chroot()


def test_nodes_belong_to_the_broker_and_only_secrets_are_hidden(servers):
    settings = {"zookeeper.set.acl": "true", "odradek.zookeeper.auth": "digest"} | IDENTITY
    with opened(servers, **settings) as store, opened(servers, **settings) as other_broker:
        store.create("/brokers/topics/t", b"public", make_parents=True)
        store.transaction().create("/config").create("/config/users").create("/config/users/u", b"hidden").commit()
        other_broker.set("/brokers/topics/t", b"changed")
        assert other_broker.get("/config/users/u")[0] == b"hidden"
        with stranger(servers) as client:
            assert client.get("/brokers/topics/t")[0] == b"changed"
            for forbidden in (
                lambda: client.set("/brokers/topics/t", b"x"),
                lambda: client.create("/brokers/topics/u"),
                lambda: client.get("/config/users/u"),
                lambda: client.get_children("/config/users"),
            ):
                with pytest.raises(NoAuthError):
                    forbidden()
    with opened(servers) as without, pytest.raises(StoreError, match=r"does not permit .* /brokers/topics/t"):
        without.set("/brokers/topics/t", b"x")
    with opened(servers) as without:
        for read in (without.get_many, without.children_many):
            with pytest.raises(StoreError, match=r"does not permit .* /config/users:"):
                read(["/brokers", "/config/users", "/config/users/u"])
    with opened(servers, **settings | {"odradek.zookeeper.password": "wrong"}) as wrong, pytest.raises(StoreError):
        wrong.set("/brokers/topics/t", b"x")


def test_nodes_are_open_without_acls(servers):
    with opened(servers, **{"odradek.zookeeper.auth": "digest"} | IDENTITY) as store:
        store.create("/a")
        with stranger(servers) as client:
            client.set("/a", b"x")


# -- SASL -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sasl_server(tmp_path_factory):
    if find_spec("puresasl") is None:
        unavailable("the Python package pure-sasl is not installed")
    file = tmp_path_factory.mktemp("sasl") / "jaas.conf"
    file.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_alice="secret"; };\n')
    settings = (
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\nenforce.auth.enabled=true\n"
        "enforce.auth.schemes=sasl\n"
    )
    with ZookeeperServer(settings, (f"-Djava.security.auth.login.config={file}",)) as server:
        yield server


def test_the_broker_authenticates_with_sasl(sasl_server):
    settings = {"zookeeper.set.acl": "true", "odradek.zookeeper.auth": "sasl"} | IDENTITY
    with opened(f"{sasl_server.hosts}/sasl", **settings) as store:
        session = store.start_session()
        store.create("/a", b"1")
        store.create("/e", ephemeral=True)
        assert store.get("/e")[1].owner == session.id
        assert {acl.id.scheme for acl in store.acl("/a")} == {"auth", "world"}
        sasl_server.kill()
        sasl_server.start()
        assert store.get("/a")[0] == b"1", "it authenticates again after a reconnection"
        store.set("/a", b"2")


def test_wrong_credentials_of_sasl_are_reported(sasl_server):
    settings = {"odradek.zookeeper.auth": "sasl", "zookeeper.session.timeout.ms": "3000"} | IDENTITY
    with (
        opened(sasl_server.hosts, **settings | {"odradek.zookeeper.password": "wrong"}) as store,
        pytest.raises(StoreUnavailable, match="refuses the credentials"),
    ):
        store.get("/")
    with opened(sasl_server.hosts, **{"zookeeper.session.timeout.ms": "3000"}) as store, pytest.raises(StoreError):
        store.get("/")


# -- TLS --------------------------------------------------------------------------------------------------------------


def make_certificate(directory, name):
    """A PEM file with a private key without password and a certificate for the host name `name`."""
    openssl = require_command("openssl", "openssl")
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
    command += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    both = directory / f"{name}.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both, certificate


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory = tmp_path_factory.mktemp("certificates")
    return {name: make_certificate(directory, name) for name in ("localhost", "client", "stranger")}


@pytest.fixture(scope="module")
def tls_server(certificates):
    (keys, _), (_, trusted) = certificates["localhost"], certificates["client"]
    settings = (
        "secureClientPort={port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={keys}\nssl.keyStore.type=PEM\nssl.trustStore.location={trusted}\nssl.trustStore.type=PEM\n"
        "ssl.clientAuth=need\nssl.protocol=TLSv1.3\nssl.enabledProtocols=TLSv1.2,TLSv1.3\n"
        "ssl.ciphersuites=TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\n"
    )
    with ZookeeperServer(settings) as server:
        yield server


def tls_settings(certificates, trusted="localhost", own="client", **more):
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(certificates[trusted][1]),
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.keystore.location": str(certificates[own][0]),
        "zookeeper.connection.timeout.ms": "5000",
    } | {f"zookeeper.ssl.{name}": value for name, value in more.items()}


@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.3", "TLSv1.2,TLSv1.3"])
def test_the_store_works_over_tls(tls_server, certificates, versions):
    settings = tls_settings(certificates, **{"enabled.protocols": versions}) | {"zookeeper.set.acl": "true"}
    settings |= {"zookeeper.connection.timeout.ms": "60000"}
    root = f"/{versions.replace(',', '-')}"
    with opened(f"localhost:{tls_server.port}{root}", **settings) as store:
        store.start_session()
        paths = [f"/{number:03}" for number in range(300)]
        for path in paths:
            store.create(path, path.encode() * 100)
        assert [node[0] for node in store.get_many(paths)] == [path.encode() * 100 for path in paths]
        seen = []
        store.get("/000", seen.append)
        store.set("/000", bytes(900_000))
        assert store.get("/000")[0] == bytes(900_000)
        assert seen


@pytest.mark.parametrize(
    ("host", "changes"),
    [
        ("localhost", {"trusted": "stranger"}),
        ("localhost", {"own": "stranger"}),
        ("127.0.0.1", {}),
    ],
)
def test_a_certificate_that_is_not_trusted_is_refused(tls_server, certificates, host, changes):
    settings = tls_settings(certificates, **changes) | {"zookeeper.connection.timeout.ms": "2000"}
    with (
        opened(f"{host}:{tls_server.port}", **settings) as store,
        pytest.raises(StoreUnavailable, match=r"within 2 s( \(TLS:.*\))?$"),
    ):
        store.start_session()


def test_the_host_name_need_not_match_without_the_check(tls_server, certificates):
    settings = tls_settings(certificates, **{"endpoint.identification.algorithm": ""})
    settings |= {"zookeeper.connection.timeout.ms": "60000"}
    with opened(f"127.0.0.1:{tls_server.port}", **settings) as store:
        assert store.start_session()


def test_tls_with_a_server_without_it_fails_in_time(certificates):
    settings = tls_settings(certificates) | {"zookeeper.connection.timeout.ms": "2000"}
    with opened(f"localhost:{shared_server().port}", **settings) as store, pytest.raises(StoreUnavailable):
        store.start_session()
