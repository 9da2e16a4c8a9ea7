"""`odradek certificate`: shows what a listener presents, or what a key store or trust store contains."""

import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.options import JSON_OPTION

if TYPE_CHECKING:
    from cryptography import x509

_TIMEOUT_S = 10.0


class Presented(NamedTuple):
    """Certificates with where they are from.

    :param source: a path, or HOST:PORT. :param details: the negotiated version and cipher suite of a listener; else empty.
    """

    source: str
    details: dict[str, Any]
    chain: "tuple[x509.Certificate, ...]"


@click.command(cls=HelpfulCommand)
@click.argument("source", metavar="HOST:PORT|FILE")
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The file with the password of a PKCS12 or JKS store, in its first line.",
)
@click.option(
    "--rules",
    metavar="RULES",
    default="DEFAULT",
    show_default=True,
    help="Rules in the form of ssl.principal.mapping.rules, to show the principal of a client with this certificate.",
)
@JSON_OPTION
def certificate(source: str, password_file: str | None, rules: str, as_json: bool) -> None:
    """Show certificates: those that a listener presents (HOST:PORT), or those in a PEM, PKCS12 or JKS file.

    Nothing is verified, so that a wrong certificate can be examined too. Exit code 1 if a certificate has expired.
    """
    from odradek.cli.framework.output import echo_json
    from odradek.security.principal import MappingError, parse_rules

    try:
        parse_rules(rules)
    except MappingError as error:
        fail(f"--rules: {error}")
    shown = _of_file(source, password_file) if Path(source).exists() else _of_listener(source)
    rows = [_described(one, rules) for one in shown.chain]
    if as_json:
        echo_json({"source": shown.source, **shown.details, "certificates": rows})
    else:
        _print(shown, rows)
    if any(row["days_left"] < 0 for row in rows):
        raise SystemExit(1)


def _of_file(path: str, password_file: str | None) -> Presented:
    from odradek.config.errors import ConfigError
    from odradek.security.keystores import StoreSettings, read_key_store, read_trust_store

    password = None
    if password_file is not None:
        password = Path(password_file).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    names = {"location": "FILE", "password": "--password-file", "key.password": "--password-file"}
    settings = StoreSettings(path, None, password, None, None, None, lambda part: names.get(part, part))
    try:
        data = Path(path).read_bytes()
        if b"-----BEGIN " in data:  # certificates are no secret: a PEM key that is encrypted does not matter here
            return Presented(path, {}, read_trust_store(settings._replace(password=None)))
        try:
            return Presented(path, {}, read_key_store(settings).chain)
        except ConfigError as error:
            if "private key" not in error.reason:
                raise
            return Presented(path, {}, read_trust_store(settings))
    except ConfigError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")


def _of_listener(address: str) -> Presented:
    from cryptography import x509

    from odradek.clients.cluster import parse_servers
    from odradek.clients.errors import ClientError

    try:
        host, port = parse_servers(address)[0]
    except ClientError as error:
        fail(f"{error}; a file of this name does not exist either")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), _TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as tls,
        ):
            cipher = tls.cipher()
            details = {"version": tls.version(), "cipher_suite": cipher and cipher[0]}
            ders = _chain(tls)
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        fail(f"the TLS handshake with {host}:{port} failed: {reason}; is it a listener with TLS?")
    except OSError as error:
        fail(f"cannot connect to {host}:{port}: {error.strerror or error}")
    return Presented(f"{host}:{port}", details, tuple(x509.load_der_x509_certificate(der) for der in ders))


def _chain(tls: ssl.SSLSocket) -> list[bytes]:
    """The DER certificates that the listener presented. Before Python 3.13 the chain has no public method."""
    owner: Any = tls if hasattr(tls, "get_unverified_chain") else getattr(tls, "_sslobj", None)
    parts = owner.get_unverified_chain() if hasattr(owner, "get_unverified_chain") else None
    if not parts:
        own = tls.getpeercert(True)
        return [] if own is None else [own]
    return [part if isinstance(part, bytes) else part.public_bytes(ssl._ssl.ENCODING_DER) for part in parts]  # type: ignore[attr-defined]


def _described(one: "x509.Certificate", rules: str) -> dict[str, Any]:
    from datetime import UTC, datetime

    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    from odradek.security.contexts import alternative_names
    from odradek.security.der import DerError
    from odradek.security.keystores import kind_of
    from odradek.security.principal import MappingError, mapper, subject_name

    der = one.public_bytes(Encoding.DER)
    try:
        subject: str = subject_name(der)
        principal: str | None = mapper(rules)(der)
    except MappingError:
        principal = None
    except DerError as error:
        subject, principal = f"(malformed: {error})", None
    ends = one.not_valid_after_utc
    return {
        "subject": subject,
        "issuer": one.issuer.rfc4514_string(),
        "names": list(alternative_names(one)),
        "key": kind_of(one.public_key()),
        "serial_number": f"{one.serial_number:x}",
        "sha256": one.fingerprint(SHA256()).hex(),
        "valid_from": one.not_valid_before_utc.isoformat(),
        "valid_until": ends.isoformat(),
        "days_left": int((ends - datetime.now(UTC)).total_seconds() // 86_400),
        "principal": principal,
    }


def _print(shown: Presented, rows: list[dict[str, Any]]) -> None:
    from odradek.cli.framework.output import ATTENTION, BAD
    from odradek.security.faults import EXPIRES_SOON_DAYS

    if shown.details:
        echo(f"{shown.source} negotiated {shown.details['version']} with {shown.details['cipher_suite']}")
    for number, row in enumerate(rows):
        expired = " (expired)" if row["days_left"] < 0 else f" ({row['days_left']} days left)"
        echo(f"certificate {number + 1} of {len(rows)}")
        for title, value in (
            ("subject", row["subject"]),
            ("issuer", row["issuer"]),
            ("names", ", ".join(row["names"]) or "-"),
            ("key", row["key"]),
            ("valid", f"{row['valid_from']} to {row['valid_until']}{expired}"),
            ("serial number", row["serial_number"]),
            ("SHA-256", row["sha256"]),
            ("principal", row["principal"] or "- (no rule applies)"),
        ):
            left = row["days_left"] if title == "valid" else EXPIRES_SOON_DAYS
            echo(f"  {title:<14} {value}", style=BAD if left < 0 else ATTENTION if left < EXPIRES_SOON_DAYS else "")
