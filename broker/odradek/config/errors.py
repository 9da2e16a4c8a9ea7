"""Configuration errors: one line for each setting that cannot be used, with its value and the allowed values."""

import re
from collections.abc import Sequence

_LOGIN_IN_URL = re.compile(r"(\w+://)[^/\s]*@")


class ConfigError(ValueError):
    """A setting that cannot be used. ``str()`` is one line: key, value, reason and where it was set.

    Attributes: ``name``: the key (empty for an error of the file); ``value``: the text of the value (None if there is none,
    ``[hidden]`` if it is sensitive, and in place of a login in a URL); ``reason``: the error and the allowed values;
    ``where``: the place of the setting (``file:line``, ``--set``, or empty); ``warnings``: one line for each unknown key
    of the same configuration.
    """

    warnings: Sequence[str] = ()

    def __init__(self, name: str, value: str | None, reason: str, where: str = "") -> None:
        self.name = name
        self.value = value = None if value is None else _LOGIN_IN_URL.sub(r"\1[hidden]@", value)
        self.reason = reason
        self.where = where
        setting = name if value is None else f"{name}={value}"
        text = f"{setting}: {reason}" if setting else reason
        super().__init__(" ".join((f"{text} ({where})" if where else text).split()))

    def at(self, where: str) -> "ConfigError":
        """A copy of the error with the place where the value was set."""
        return ConfigError(self.name, self.value, self.reason, where)

    @property
    def errors(self) -> "tuple[ConfigError, ...]":
        """The errors of the single settings: for this class, the error itself."""
        return (self,)


class ConfigErrors(ConfigError):
    """Several settings that cannot be used. The attributes are those of the first; ``str()`` is one line with all errors."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        super().__init__(first.name, first.value, first.reason, first.where)
        self._errors = tuple(errors)
        self.args = ("; ".join(map(str, errors)),)

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """The errors of the single settings, in the order of the checks."""
        return self._errors


def combined(errors: Sequence[ConfigError]) -> ConfigError:
    """One exception for at least one error: the error itself, or ConfigErrors."""
    return errors[0] if len(errors) == 1 else ConfigErrors(errors)


def raise_all(errors: Sequence[ConfigError]) -> None:
    """Raise the errors as one exception; do nothing if there are none. Raises ConfigError, for several errors ConfigErrors."""
    if errors:
        raise combined(errors)
