"""The rows for TLS and SCRAM. Both brokers get TLS listeners and a SASL listener beside the plain one, and a user.

The generator (`--tls`, `--user`) makes TLS 1.3 connections with AES-256-GCM."""

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.brokers import Held, Kafka, Server, free_port, generate
from bench.rows import MB, WORKED_BYTES, Figures, Row, Target, bulk_fetch, bulk_produce, measured, small_produce

TAG = "security"
USER, PASSWORD = "bench", "bench-secret"
MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 4096
IDLE = 10_000
RATE_BESIDE = 500
WARM_UP_LOGINS_S = "8"


def make_certificate(directory: Path, algorithm: str) -> Path:
    """Make a self-signed certificate with openssl(1): a PEM file with the key and the certificate.

    :param algorithm: ec or rsa.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{algorithm}.pem"
    key, certificate = directory / f"{algorithm}.key", directory / f"{algorithm}.crt"
    new_key = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if algorithm == "ec" else ["rsa:2048"]
    subprocess.run(
        ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-newkey", *new_key,
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(key.read_text() + certificate.read_text())
    return path


def secure(server: Server) -> None:
    """Give a broker that is not started yet a TLS listener for each kind of key, and a SASL listener."""
    names = {"EC": "ec", "RSA": "rsa"}
    server.ports = {}
    for name in (*names, "SASL"):
        taken = {server.port, server.port + 1, *server.ports.values()}
        server.ports[name] = next(port for port in iter(free_port, 0) if port not in taken)
    controller = f",CONTROLLER://127.0.0.1:{server.port + 1}" if isinstance(server, Kafka) else ""
    listeners = ",".join(
        f"{name}://127.0.0.1:{port}" for name, port in {"PLAINTEXT": server.port, **server.ports}.items()
    )
    protocols = "PLAINTEXT:PLAINTEXT,EC:SSL,RSA:SSL,SASL:SASL_PLAINTEXT" + (
        ",CONTROLLER:PLAINTEXT" if controller else ""
    )
    server.settings |= {
        "listeners": listeners + controller,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": protocols,
        "ssl.keystore.type": "PEM",
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.sasl.{MECHANISM.lower()}.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule"
        " required;",
    }
    for name, algorithm in names.items():
        path = make_certificate(server.directory / "keys", algorithm)
        server.settings[f"listener.name.{name.lower()}.ssl.keystore.location"] = str(path)


def add_user(server: Server) -> None:
    """Give the user of `logins` a credential."""
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{server.port}", "log_level": 0})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    credential = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin.alter_user_scram_credentials([credential])[USER].result(60)


def tls(server: Server, name: str = "EC") -> tuple[str, ...]:
    """The generator's options for a TLS listener."""
    return "--port", str(server.ports[name]), "--tls"


def sasl(server: Server) -> tuple[str, ...]:
    """The generator's options for the SASL listener."""
    return "--port", str(server.ports["SASL"]), "--user", f"{USER}:{PASSWORD}"


def warm_up(server: Server) -> None:
    """Every load over TLS and every kind of login, unmeasured."""
    add_user(server)
    for topic in ("warm-up-tls", "warm-up-tls-2"):
        server.create_topic(topic, 4)
        server.wait(topic, 4)
    small = ("--topic", "warm-up-tls", "--partitions", "4", *tls(server))
    load = ("--topic", "warm-up-tls-2", "--partitions", "4", *tls(server))
    generate("produce", server, *small, "--conns", "8", "--inflight", "5", "--seconds", "8")
    generate(
        "produce", server, *load, "--conns", "4", "--inflight", "3", "--batch-bytes", "65536", "--size", "1000",
        "--requests", "8000",
    )  # fmt: skip
    generate("fetch", server, *load, "--conns", "4", "--bytes", str(2 * WORKED_BYTES))
    for options in (tls(server), tls(server, "RSA"), sasl(server)):
        generate("logins", server, *options, "--conns", "4", "--seconds", WARM_UP_LOGINS_S)
    for topic in ("warm-up-tls", "warm-up-tls-2"):
        server.delete_topic(topic)


def logins(options: Callable[[Server], tuple[str, ...]]) -> Callable[[Server, str], Figures]:
    """Logins as fast as the generator can make them."""

    def run(server: Server, topic: str) -> Figures:
        figures = measured("logins", server, "--conns", "8", "--seconds", "4", "--warmup", "0.5", *options(server))
        return {"rate": figures["logins"] / figures["seconds"], "cpu_us": figures["cpu_ns"] / 1e3 / figures["logins"]}

    return run


def beside_handshakes(server: Server, topic: str) -> Figures:
    """p99 of a producer on a plain connection, alone and during TLS handshakes of others."""
    load = ("--topic", topic, "--seconds", "4", "--warmup", "0.5")
    alone = measured("produce", server, *load)
    others = Held(
        "logins",
        server,
        "--conns",
        "8",
        "--login-rate",
        str(RATE_BESIDE),
        "--seconds",
        "6",
        "--warmup",
        "1",
        *tls(server),
    )
    others.go()
    beside = measured("produce", server, *load)
    others.expect("done")
    others.go()
    rate = others.finish()
    return {
        "p99": beside["p99_us"],
        "slower": beside["p99_us"] / alone["p99_us"],
        "handshakes": float(rate["logins"]) / float(rate["seconds"]),
    }


def idle(server: Server, topic: str) -> Figures:
    """Memory while the connections are open. Both brokers keep some of it for later connections, so that the growth of a second
    round tells nothing."""
    held = Held("idle", server, "--conns", str(IDLE), "--sources", "4", *tls(server))
    during = server.pss()
    held.go()
    held.expect("done")
    held.go()
    held.finish()
    return {"pss_mb": during / MB}


RATE = Target("rate", "a second", 2.0, more_is_better=True, middle=True)
SECURITY_ROWS = (
    Row("tls-small", "produce over TLS, 100 B records one per request, 8 connections x 5 in flight",
        partial(small_produce, options=tls),
        (Target("cpu_us", "us CPU per request", 0.2), Target("rate", "requests/s", 1.0, more_is_better=True, middle=True)),
        partitions=8, tags=(TAG,)),
    Row("tls-produce-1m", "produce over TLS, 1 MiB batches", bulk_produce(1 << 20, options=tls),
        (Target("cpu_s", "s CPU per GB", 0.6), Target("rate", "MB/s", 1.0, more_is_better=True, middle=True)),
        partitions=4, tags=(TAG,)),
    Row("tls-fetch-1m", "fetch over TLS, 1 MiB at a time, cached", bulk_fetch(1 << 20, options=tls, times=2, unit=MB),
        (Target("cpu_s", "s CPU per GB", 0.6), Target("rate", "MB/s", 1.0, more_is_better=True, middle=True)),
        partitions=4, tags=(TAG,)),
    Row("tls-handshakes", "TLS handshakes, ECDSA P-256", logins(tls),
        (RATE, Target("cpu_us", "us CPU per handshake", 0.5)), tags=(TAG,)),
    Row("tls-handshakes-rsa", "TLS handshakes, RSA 2048", logins(lambda server: tls(server, "RSA")),
        (RATE, Target("cpu_us", "us CPU per handshake", 0.5)), tags=(TAG,)),
    Row("beside-handshakes", f"produce acks=1, one in flight, beside {RATE_BESIDE} TLS handshakes a second", beside_handshakes,
        (Target("p99", "us p99", 1.0, middle=True), Target("slower", "x its p99 alone", 2.0, middle=True, absolute=1.5)),
        tags=(TAG,)),
    Row("scram-logins", f"logins with {MECHANISM}, without TLS", logins(sasl),
        (Target("rate", "a second", 3.0, more_is_better=True, middle=True), Target("cpu_us", "us CPU per login", 0.25)),
        tags=(TAG,)),
    Row("tls-idle", f"{IDLE:,} idle TLS connections", idle,
        (Target("pss_mb", "MB PSS in all", 0.5),), tags=(TAG,)),
)  # fmt: skip
