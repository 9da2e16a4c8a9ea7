"""The SASL settings of a client, in Kafka's keys: `sasl.mechanism` and `sasl.jaas.config`."""

from collections.abc import Mapping

from odradek.config.errors import ConfigError
from odradek.security import jaas
from odradek.security.sasl.client import MECHANISMS, PLAIN, Credentials
from odradek.security.sasl.scram import TOKEN_AUTH

MECHANISM_KEY, JAAS_KEY = "sasl.mechanism", "sasl.jaas.config"
HIDDEN = "[hidden]"
_MODULES = {PLAIN: "PlainLoginModule"}
_SCRAM_MODULE = "ScramLoginModule"


def credentials_of(settings: Mapping[str, str]) -> Credentials:
    """The mechanism, the user and the password. Raises ConfigError, which shows no value of `sasl.jaas.config`."""
    mechanism = settings.get(MECHANISM_KEY) or None
    if mechanism not in MECHANISMS:
        raise ConfigError(MECHANISM_KEY, mechanism, f"must be one of {', '.join(MECHANISMS)}")
    text = settings.get(JAAS_KEY)
    expected = _MODULES.get(mechanism, _SCRAM_MODULE)
    if not text:
        raise ConfigError(JAAS_KEY, None, f'must be set: ...{expected} required username="..." password="...";')
    try:
        module = jaas.parse(text)
    except jaas.JaasError as error:
        raise ConfigError(JAAS_KEY, HIDDEN, str(error)) from None
    if module.simple_name != expected:
        raise ConfigError(JAAS_KEY, HIDDEN, f"has the login module {module.name}; {mechanism} needs {expected}")
    missing = [name for name in ("username", "password") if name not in module.options]
    if missing:
        raise ConfigError(JAAS_KEY, HIDDEN, f"must have the option {missing[0]}")
    by_token = module.options.get(TOKEN_AUTH, "").lower() == "true"
    if by_token and mechanism == PLAIN:
        raise ConfigError(JAAS_KEY, HIDDEN, f"has {TOKEN_AUTH}=true; a delegation token needs a SCRAM mechanism")
    return Credentials(mechanism, module.options["username"], module.options["password"], by_token)
