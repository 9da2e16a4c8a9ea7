"""Errors of configuration: a line for each setting that cannot be used, which a person can act upon."""

from collections.abc import Sequence


class ConfigError(ValueError):
    """A setting that cannot be used. ``str()`` is one line: key, value, what is allowed and where it was set.

    Attributes: ``name`` the key (empty if the file itself is at fault), ``value`` what was given (None if absent,
    ``[hidden]`` if sensitive), ``reason`` what is allowed, ``where`` the place (``file:line``, ``--set``, or empty).
    """

    def __init__(self, name: str, value: str | None, reason: str, where: str = "") -> None:
        self.name = name
        self.value = value
        self.reason = reason
        self.where = where
        setting = name if value is None else f"{name}={value}"
        text = f"{setting}: {reason}" if setting else reason
        super().__init__(" ".join((f"{text} ({where})" if where else text).split()))

    def at(self, where: str) -> "ConfigError":
        """The same error with the place where the value was set."""
        return ConfigError(self.name, self.value, self.reason, where)

    @property
    def errors(self) -> "tuple[ConfigError, ...]":
        """The errors that this one consists of, one for each setting: itself."""
        return (self,)


class ConfigErrors(ConfigError):
    """Several settings that cannot be used. Its attributes are those of the first; ``str()`` is one line with all of them."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        super().__init__(first.name, first.value, first.reason, first.where)
        self._errors = tuple(errors)
        self.args = ("; ".join(map(str, errors)),)

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """The errors, in the order in which they were found."""
        return self._errors


def raise_all(errors: Sequence[ConfigError]) -> None:
    """Raise these errors together: a single one as it is; nothing if there is none. Raises ConfigError."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ConfigErrors(errors)
