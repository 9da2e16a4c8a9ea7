"""The one error of configuration: a single line that a person can act upon."""


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
