"""Translates the environment variables of the usual images of Kafka into settings of the broker.

Pure functions of a mapping of variables; files are read only for variables that name one. Three families of names are known:
those of `apache/kafka` and `confluentinc/cp-kafka` (`KAFKA_LOG_RETENTION_MS`), those of Bitnami's image
(`KAFKA_CFG_LOG_RETENTION_MS`), and those of this image (`ODRADEK_PUBLISHED_ADDRESS`). No error and no message contains a
value that may be a secret.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from odradek.cli.container.jaas_file import jaas_settings
from odradek.config.broker_config import Environment
from odradek.config.errors import ConfigError, raise_all
from odradek.config.listeners import parse_address, parse_protocol_map
from odradek.config.table import BROKER_KEYS, FREE_PREFIXES, broker_key

SECRETS = Path("/etc/kafka/secrets")
"""Where the images of Apache and Confluent look for key stores and for files with passwords."""
LARGEST_SECRET = 1 << 20
PREFIXES = ("KAFKA_CFG_", "KAFKA_", "ODRADEK_")
FILE = "_FILE"
PUBLISHED = "odradek.published.address"

OF_COMMAND = frozenset(
    ("ODRADEK_BOOTSTRAP_SERVERS", "ODRADEK_COMMAND_CONFIG", "ODRADEK_COMPLETE_NAMES", "ODRADEK_NODE_ID", "ODRADEK_JOBS")
)
"""Variables of Odradek's command and of builds, which are no settings of the broker."""
OF_IMAGES = re.compile(
    r"""KAFKA_(?:
        (?:HEAP|JVM_PERFORMANCE|GC_LOG|JMX|LOG4J)_OPTS | OPTS | JMX_(?:PORT|HOSTNAME) | (?:TOOLS_)?LOG4J_.* | DEBUG
        | HOME | VERSION | BASE_DIR | VOLUME_DIR | CONF_DIR | EXTRA_FLAGS | ENABLE_KRAFT | (?:KRAFT_)?CLUSTER_ID
        | SKIP_KRAFT_STORAGE_INIT | INITIAL_CONTROLLERS | CONFLUENT_.* | REST_.* | CREATE_TOPICS(?:_SEPARATOR)?
    ) | CLUSTER_ID | CONFLUENT_.* | ALLOW_PLAINTEXT_LISTENER | BITNAMI_.* | JMX_PORT | START_TIMEOUT""",
    re.VERBOSE,
)
"""Variables of other images that are no settings of Kafka."""
OF_SERVICES = re.compile(
    r"(?:KAFKA|ODRADEK)(?:_[A-Z0-9_]+)?_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP)\w*)=.*"
    r"|(?:KAFKA|ODRADEK)(?:_[A-Z0-9_]+)?_PORT=\w+://.*"
)
"""Variables that Kubernetes sets for a service with the name kafka: `KAFKA_SERVICE_HOST`, `KAFKA_PORT=tcp://10.0.0.1:9092`."""
FIRST_TOPICS, SEPARATOR = "KAFKA_CREATE_TOPICS", "KAFKA_CREATE_TOPICS_SEPARATOR"
ROOT_LEVEL = "KAFKA_LOG4J_ROOT_LOGLEVEL"
OF_THIS_PROGRAM = frozenset((FIRST_TOPICS, SEPARATOR, ROOT_LEVEL, "START_TIMEOUT"))
"""Variables that are no settings of the broker, but have an effect."""

NEEDS_SHELL = {
    "BROKER_ID_COMMAND": "KAFKA_BROKER_ID",
    "HOSTNAME_COMMAND": "KAFKA_ADVERTISED_LISTENERS",
    "PORT_COMMAND": "KAFKA_ADVERTISED_LISTENERS",
    "RACK_COMMAND": "KAFKA_BROKER_RACK",
    "CUSTOM_INIT_SCRIPT": "",
}
"""Variables that contain a shell command, and for each the variable to set instead."""
LOGINS_OF_BITNAMI = re.compile(
    r"KAFKA_(?:(?:CLIENT|INTER_BROKER|CONTROLLER)_(?:USERS?|PASSWORDS?|LISTENER_NAME)|ZOOKEEPER_(?:USER|PASSWORD|PROTOCOL|TLS_.*)"
    r"|CERTIFICATE_PASSWORD|TLS_(?:TYPE|CLIENT_AUTH|TRUSTSTORE_FILE)|(?:CONTROLLER|INTER_BROKER)_SASL_MECHANISM)"
)
"""Logins and certificates of Bitnami's image. A broker that ignored them would protect less than the user expects."""
OLD_ADDRESSES = {"advertised.host.name", "advertised.port", "host.name", "port"}
"""Keys that Kafka had before `listeners`; `kafka-docker` still sets them."""
OLD_PROTOCOLS = {"advertised.protocol.name", "protocol.name", "inter.broker.port"}
FILES_OF_SECRETS = {
    "ssl.keystore.filename": "ssl.keystore.location",
    "ssl.truststore.filename": "ssl.truststore.location",
}
CREDENTIALS = {
    "ssl.keystore.credentials": "ssl.keystore.password",
    "ssl.key.credentials": "ssl.key.password",
    "ssl.truststore.credentials": "ssl.truststore.password",
}
"""Names of files below `SECRETS` with passwords."""
Entry = tuple[str, str, str]


class Given(NamedTuple):
    """A setting from a variable: its text, and the variable."""

    text: str
    variable: str


def environment_of(variables: Mapping[str, str], secrets: Path = SECRETS) -> Environment:
    """The settings of all variables, and a note that names the variables without effect. Raises ConfigError with all errors."""
    errors: list[ConfigError] = []
    given: dict[str, Given] = {}
    empty: set[str] = set()
    without_effect = sorted(name for name in variables if OF_IMAGES.fullmatch(name) and name not in OF_THIS_PROGRAM)
    for name in sorted(variables, key=_precedence):
        try:
            for key, text, variable in _setting(name, variables):
                if _is_unset(key, text):
                    empty.add(key)
                else:
                    given[key] = Given(text, variable)
        except ConfigError as error:
            errors += error.errors
    for step in (_secrets(given, secrets), _old_addresses(given), _derived(given, variables)):
        try:
            for key, text, variable in step:
                given.setdefault(key, Given(text, variable))
        except ConfigError as error:
            errors += error.errors
    try:
        for key, text in jaas_settings(variables.get("KAFKA_OPTS", ""), _sasl_listeners(given)):
            given.setdefault(key, Given(text, "KAFKA_OPTS"))
    except ConfigError as error:
        errors += error.errors
    raise_all(errors)
    used = {value.variable for value in given.values()}
    without_effect = [name for name in without_effect if name not in used]
    notes = (f"these environment variables have no effect: {', '.join(without_effect)}",) if without_effect else ()
    defaults = () if PUBLISHED in empty else tuple(_defaults(variables))
    return Environment(
        defaults, tuple((key, value.text, _where(value.variable)) for key, value in given.items()), notes
    )


def _where(variable: str) -> str:
    return f"environment variable {variable}"


def _precedence(name: str) -> tuple[int, str]:
    """Variables are read in the order KAFKA_, KAFKA_CFG_, ODRADEK_. A later one that is not empty replaces an earlier one of
    the same key."""
    return (2 if name.startswith("ODRADEK_") else 1 if name.startswith("KAFKA_CFG_") else 0), name


def _setting(name: str, variables: Mapping[str, str]) -> Iterator[Entry]:
    """The setting of one variable, if it is one. Raises ConfigError for a variable that must not be ignored."""
    if name in NEEDS_SHELL:
        instead = NEEDS_SHELL[name]
        advice = f"; set {instead}" if instead else ""
        raise ConfigError(name, None, f"needs a shell, which this image does not have{advice}")
    if LOGINS_OF_BITNAMI.fullmatch(name) and not broker_key(key_of(name)):
        raise ConfigError(
            name,
            None,
            "is not supported: set the keys of Kafka instead, such as KAFKA_LISTENER_NAME_..._SASL_JAAS_CONFIG and "
            "KAFKA_SSL_KEYSTORE_PASSWORD, or create users with `odradek user add`",
        )
    if not name.startswith(PREFIXES) or name in OF_COMMAND or OF_IMAGES.fullmatch(name):
        return
    if OF_SERVICES.fullmatch(f"{name}={variables[name]}"):
        return
    key, text = key_of(name), variables[name]
    plain = name.removesuffix(FILE)
    if not _is_known(key) and plain != name and _is_known(key_of(plain)):
        if plain in variables:
            raise ConfigError(name, None, f"must not be set together with {plain}")
        key, text = key_of(plain), _content(Path(text), name)
    if key in OLD_PROTOCOLS:
        raise ConfigError(name, None, "is not supported: set KAFKA_LISTENERS and KAFKA_ADVERTISED_LISTENERS")
    if "_{" in text and key in ("listeners", "advertised.listeners", "broker.rack"):
        raise ConfigError(name, None, "contains a command in _{...}, which needs a shell: this image has none")
    yield key, text, name


def key_of(variable: str) -> str:
    """The key that a variable means: `___` is `-`, `__` is `_`, and `_` is `.`; the case is that of the table of keys."""
    own = variable.startswith("ODRADEK_")
    of_bitnami = variable.startswith("KAFKA_CFG_")
    rest = variable.removeprefix("KAFKA_CFG_" if of_bitnami else "ODRADEK_" if own else "KAFKA_")
    key = rest.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
    if of_bitnami:  # its image writes no double underscore
        key = key.replace("sasl.ssl", "sasl_ssl").replace("sasl.plaintext", "sasl_plaintext")
    if own:
        key = f"odradek.{key}" if f"odradek.{key}" in BROKER_KEYS or key not in BROKER_KEYS else key
    return _BY_LOWER_CASE.get(key, key)


_BY_LOWER_CASE = {key.lower(): key for key in BROKER_KEYS if key != key.lower()}


def _is_known(key: str) -> bool:
    return broker_key(key) is not None or key.startswith(FREE_PREFIXES) or key in OLD_ADDRESSES | CREDENTIALS.keys()


def _is_unset(key: str, text: str) -> bool:
    """Whether an empty variable means that the key is not set. For some keys an empty text is a value."""
    row = broker_key(key)
    if text or row is None or row.no_effect:
        return not text
    try:
        row.parse(text)
    except ConfigError:
        return True
    return False


def _content(file: Path, variable: str) -> str:
    """The text of a file with a secret, without the line break at its end. Raises ConfigError."""
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST_SECRET + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigError(variable, str(file), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(variable, str(file), "is not UTF-8 text") from None
    if len(data) > LARGEST_SECRET:
        raise ConfigError(variable, str(file), f"is larger than {LARGEST_SECRET} bytes")
    return text.removesuffix("\n").removesuffix("\r")


def _secrets(given: dict[str, Given], secrets: Path) -> Iterator[Entry]:
    """The key stores and passwords that the images of Apache and Confluent find below `SECRETS`. Raises ConfigError."""
    for key, target in FILES_OF_SECRETS.items():
        if key in given:
            found = given.pop(key)
            yield target, str(secrets / found.text), found.variable
    for key, target in CREDENTIALS.items():
        if key in given:
            found = given.pop(key)
            yield target, _content(secrets / found.text, found.variable), found.variable


def _old_addresses(given: dict[str, Given]) -> Iterator[Entry]:
    """`listeners` and `advertised.listeners` from `OLD_ADDRESSES`. Raises ConfigError."""
    old = {key: given.pop(key) for key in OLD_ADDRESSES if key in given}
    port = old["port"].text if "port" in old else "9092"
    if "port" in old or "host.name" in old:
        host = old["host.name"].text if "host.name" in old else ""
        yield "listeners", f"PLAINTEXT://{host}:{port}", next(iter(old.values())).variable
    if "advertised.host.name" in old:
        advertised = old["advertised.port"].text if "advertised.port" in old else port
        host = old["advertised.host.name"].text
        yield "advertised.listeners", f"PLAINTEXT://{host}:{advertised}", old["advertised.host.name"].variable


def _derived(given: dict[str, Given], variables: Mapping[str, str]) -> Iterator[Entry]:
    """The settings that the scripts of the images of Apache and Confluent derive from other variables."""
    advertised = given.get("advertised.listeners")
    if advertised is not None and "listeners" not in given and not advertised.variable.startswith("KAFKA_CFG_"):
        yield "listeners", re.sub(r"://(?:\[[^\]]*\]|[^:,]*):", "://0.0.0.0:", advertised.text), advertised.variable
    if variables.get(ROOT_LEVEL):
        yield "log.level", variables[ROOT_LEVEL], ROOT_LEVEL


def _sasl_listeners(given: Mapping[str, Given]) -> list[str]:
    """The names of the configured listeners with SASL. Errors in them are reported by the configuration."""
    protocols = {"SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
    names = []
    try:
        if "listener.security.protocol.map" in given:
            protocols = parse_protocol_map(given["listener.security.protocol.map"].text)
        for item in given["listeners"].text.split(",") if "listeners" in given else ():
            name = parse_address("listeners", item.strip())[0]
            if protocols.get(name, "").startswith("SASL_"):
                names.append(name)
    except ConfigError:
        return []
    return names


VOLUMES = {
    "/var/lib/kafka/data": "/var/lib/kafka/data",
    "/var/lib/kafka": "/var/lib/kafka/data",
    "/bitnami/kafka": "/bitnami/kafka",
    "/bitnami": "/bitnami/kafka",
    "/kafka": "/kafka",
}
"""The places at which stacks of other images mount the volume with the data, and the directory of their data in it."""


def data_volume(mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The directory of the data in a stack that was made for another image; None if it mounts no volume for them.

    Source: proc(5). A volume may be of the same file system as the container's root, so that its device does not show it."""
    mounted = {line.split()[4] for line in mounts.read_text().splitlines()}
    return next((data for volume, data in VOLUMES.items() if volume in mounted), None)


def _defaults(variables: Mapping[str, str], network: Path = Path("/sys/class/net")) -> Iterator[Entry]:
    """Settings over which the file takes precedence: clients of a published port receive `localhost` (decision 52)."""
    if "KUBERNETES_SERVICE_HOST" not in variables and not shares_network(network):
        yield PUBLISHED, "localhost", "the image"


def shares_network(directory: Path = Path("/sys/class/net")) -> bool:
    """Whether the container uses the network of the host (`--network host`): it then sees interfaces with a device."""
    try:
        return any((interface / "device").exists() for interface in directory.iterdir())
    except OSError:
        return False
