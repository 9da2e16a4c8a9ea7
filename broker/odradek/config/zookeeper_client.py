"""The settings of the connection to ZooKeeper, checked and combined: identity, TLS, the protocol version of the cluster.

Pure functions, except that they read the files of key stores. A start checks them before it creates anything
(`wrong_settings`); the coordinator uses the results.
"""

import importlib.util
import re
import ssl
from collections.abc import Iterator

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.key import show
from odradek.config.table import BROKER_KEYS

LEAST_PROTOCOL_VERSION = (3, 9)
TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
AUTH, USERNAME, PASSWORD = "odradek.zookeeper.auth", "odradek.zookeeper.username", "odradek.zookeeper.password"
SASL_PACKAGE = "pure-sasl"
_ENABLED, _SUITES = "zookeeper.ssl.client.enable", "zookeeper.ssl.cipher.suites"
_PROTOCOLS, _PROTOCOL = "zookeeper.ssl.enabled.protocols", "zookeeper.ssl.protocol"
_HOST_CHECK = "zookeeper.ssl.endpoint.identification.algorithm"
_KEYS, _KEYS_TYPE, _KEY_PASSWORD = (
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.keystore.password",
)
_TRUSTED, _TRUSTED_TYPE = "zookeeper.ssl.truststore.location", "zookeeper.ssl.truststore.type"
_CONVERT = "; convert it, for example with `openssl pkcs12 -in FILE -out FILE.pem`"


def _error(config: BrokerConfig, name: str, reason: str) -> ConfigError:
    value = "[hidden]" if BROKER_KEYS[name].sensitive and config.is_set(name) else show(config[name])
    return ConfigError(name, value, reason, config.where(name) if config.is_set(name) else "")


def wrong_settings(config: BrokerConfig) -> Iterator[ConfigError]:
    """The errors of a broker that joins a cluster, one for each setting that cannot be used."""
    yield from _wrong_protocol_version(config)
    yield from _wrong_identity(config)
    try:
        tls_context(config)
    except ConfigError as error:
        yield from error.errors


def _wrong_protocol_version(config: BrokerConfig) -> Iterator[ConfigError]:
    name = "inter.broker.protocol.version"
    if config[name] is None:
        return
    version = tuple(int(number) for number in re.findall(r"[0-9]+", config.text(name).partition("-")[0])[:2])
    if version < LEAST_PROTOCOL_VERSION:
        yield _error(
            config,
            name,
            "is below 3.9, the version of all requests to other brokers; first set 3.9 on all brokers of the cluster",
        )


# -- identity ---------------------------------------------------------------------------------------------------------


def _wrong_identity(config: BrokerConfig) -> Iterator[ConfigError]:
    auth = config[AUTH]
    if auth is None:
        for name in (USERNAME, PASSWORD):
            if config[name] is not None:
                yield _error(config, name, f"requires {AUTH}=digest or {AUTH}=sasl")
    else:
        if not config[USERNAME] or ":" in config.text(USERNAME):
            yield _error(config, USERNAME, f"must be a name without a colon, because {AUTH}={auth} is set")
        if config[PASSWORD] is None:
            yield _error(config, PASSWORD, f"must be set, because {AUTH}={auth} is set")
    if auth == "sasl" and importlib.util.find_spec("puresasl") is None:
        yield _error(config, AUTH, f"requires the Python package {SASL_PACKAGE}: pip install {SASL_PACKAGE}")
    certified = config[_ENABLED] and config[_KEYS] is not None
    if config["zookeeper.set.acl"] and auth is None and not certified:
        yield _error(
            config,
            "zookeeper.set.acl",
            f"requires that ZooKeeper knows who this broker is: set {AUTH}, or TLS with {_KEYS}",
        )


def digest_credentials(config: BrokerConfig) -> tuple[tuple[str, str], ...]:
    """The credentials of ZooKeeper's scheme digest, as pairs of scheme and user:password; empty if none are configured."""
    return (("digest", f"{config[USERNAME]}:{config[PASSWORD]}"),) if config[AUTH] == "digest" else ()


def sasl_options(config: BrokerConfig) -> dict[str, str] | None:
    """The options for SASL with DIGEST-MD5; None if it is not configured."""
    if config[AUTH] != "sasl":
        return None
    return {"mechanism": "DIGEST-MD5", "username": config.text(USERNAME), "password": config.text(PASSWORD)}


# -- TLS --------------------------------------------------------------------------------------------------------------


def tls_context(config: BrokerConfig) -> ssl.SSLContext | None:
    """How to use TLS for the connection; None if it is disabled. Raises ConfigError for a setting that cannot be used."""
    if not config[_ENABLED]:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if config[name]:
            raise _error(config, name, "is not supported: the broker cannot check whether a certificate was revoked")
    algorithm = config[_HOST_CHECK] or ""
    if str(algorithm).upper() not in ("HTTPS", ""):
        raise _error(config, _HOST_CHECK, "must be HTTPS or empty")
    context.check_hostname = bool(algorithm)
    _set_versions(config, context)
    _set_suites(config, context)
    _load_stores(config, context)
    return context


def _set_versions(config: BrokerConfig, context: ssl.SSLContext) -> None:
    name = _PROTOCOLS if config[_PROTOCOLS] else _PROTOCOL
    value = config[name]
    names = value if isinstance(value, tuple) else (str(value),)
    if not all(version in TLS_VERSIONS for version in names):
        raise _error(config, name, f"must contain only {' and '.join(TLS_VERSIONS)}")
    versions = sorted(TLS_VERSIONS[version] for version in names)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _set_suites(config: BrokerConfig, context: ssl.SSLContext) -> None:
    suites = config[_SUITES]
    if not isinstance(suites, tuple) or not suites:
        return
    selectable = [suite for suite in suites if not re.match(r"TLS_(AES|CHACHA20)_", suite)]
    if len(selectable) < len(suites):
        reason = "must not contain suites of TLSv1.3, which are all enabled with that version"
        raise _error(config, _SUITES, reason)
    try:
        context.set_ciphers(":".join(map(openssl_suite, suites)))
    except ssl.SSLError:
        raise _error(config, _SUITES, "must contain suites that OpenSSL supports") from None


def openssl_suite(name: str) -> str:
    """OpenSSL's name of a cipher suite of TLSv1.2: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    if "_WITH_" not in name:
        return name
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"AES_([0-9]+)_", r"AES\1_", cipher).replace("_CBC_", "_").replace("POLY1305_SHA256", "POLY1305")
    return ("" if exchange == "RSA" else exchange.replace("_", "-") + "-") + cipher.replace("_", "-")


def _load_stores(config: BrokerConfig, context: ssl.SSLContext) -> None:
    keys, trusted = _pem_file(config, _KEYS, _KEYS_TYPE), _pem_file(config, _TRUSTED, _TRUSTED_TYPE)
    if keys is not None:
        password = config[_KEY_PASSWORD]
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(keys, password=lambda: "" if password is None else str(password))
        except (OSError, ValueError) as error:
            reason = "must contain the private key and its certificates in PEM format"
            raise _error(config, _KEYS, f"{reason}; {_text_of(error)}") from None
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    try:
        context.load_verify_locations(trusted)
    except (OSError, ValueError) as error:
        reason = "must contain certificates in PEM format"
        raise _error(config, _TRUSTED, f"{reason}; {_text_of(error)}") from None


def _text_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"OpenSSL: {error.reason}"
    return getattr(error, "strerror", None) or str(error)


def _pem_file(config: BrokerConfig, location_key: str, type_key: str) -> str | None:
    """The path of a key store in PEM format; None if it is not configured. Raises ConfigError for another format."""
    location, kind = config[location_key], config[type_key]
    if location is None:
        return None
    if kind is not None and str(kind).upper() != "PEM":
        raise _error(config, type_key, f"is not supported; must be PEM{_CONVERT}")
    if kind is None and not str(location).lower().endswith(".pem"):
        reason = f"must be a file in PEM format, named *.pem or with {type_key}=PEM{_CONVERT}"
        raise _error(config, location_key, reason)
    return str(location)
