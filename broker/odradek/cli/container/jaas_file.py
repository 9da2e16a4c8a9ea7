"""Reads the file that `-Djava.security.auth.login.config` in KAFKA_OPTS names, for stacks that were made for a JVM.

As in Kafka, the logins of a listener are in the section `LISTENER.KafkaServer`, or else in `KafkaServer`. No error contains an
option of a login module, because options can be secrets.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from odradek.config.errors import ConfigError
from odradek.security.jaas import JaasError, parse

_PROPERTY = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")
_QUOTED = r'"(?:\\.|[^"\\])*"'
_SECTION = re.compile(rf"([\w.-]+)\s*\{{((?:[^{{}}\"]|{_QUOTED})*)\}}\s*;")
_MODULE = re.compile(rf'(?:[^;"]|{_QUOTED})+;')
_COMMENT = re.compile(rf"({_QUOTED})|//[^\n]*|/\*.*?\*/", re.DOTALL)
SECTION = "KafkaServer"
MECHANISMS = {
    "PlainLoginModule": ("plain",),
    "ScramLoginModule": ("scram-sha-256", "scram-sha-512"),
    "OAuthBearerLoginModule": ("oauthbearer",),
}


def jaas_settings(options: str, listeners: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The keys `listener.name.NAME.MECHANISM.sasl.jaas.config` that the file of these JVM options contains, with their texts.

    :param listeners: the names of the listeners with SASL. Raises ConfigError.
    """
    found = _PROPERTY.search(options)
    if found is None or not listeners:
        return
    file = Path(found[1].strip("\"'"))
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(
            "KAFKA_OPTS", None, f"cannot read the file of java.security.auth.login.config: {file}: {reason}"
        ) from None
    sections = dict(_SECTION.findall(_COMMENT.sub(lambda found: found[1] or "", text)))
    for listener in listeners:
        section = sections.get(f"{listener.lower()}.{SECTION}", sections.get(SECTION))
        if section is None:
            raise ConfigError("KAFKA_OPTS", None, f"{file} has no section {SECTION} {{ ... }};")
        for module in map(_on_one_line, _MODULE.findall(section)):
            try:
                kind = parse(module).simple_name
            except JaasError as error:
                raise ConfigError("KAFKA_OPTS", None, f"{file}: {SECTION}: {error}") from None
            if kind not in MECHANISMS:
                known = ", ".join(MECHANISMS)
                raise ConfigError(
                    "KAFKA_OPTS", None, f"{file}: the login module {kind} is not supported; must be {known}"
                )
            for mechanism in MECHANISMS[kind]:
                yield f"listener.name.{listener.lower()}.{mechanism}.sasl.jaas.config", module


def _on_one_line(module: str) -> str:
    """A login module without line breaks between its options."""
    parts = re.split(f"({_QUOTED})", module)
    return "".join(part if number % 2 else re.sub(r"\s+", " ", part) for number, part in enumerate(parts)).strip()
