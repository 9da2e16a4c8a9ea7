"""``config.providers``: values of a properties file that are kept elsewhere, as ``${file:PATH:KEY}``, ``${directory:DIR:FILE}``
and ``${env:NAME}``.

The classes are those that Kafka contains, by their Java names, with their parameters. They are executed once, when the file is
read. A value that cannot be found is an error; no error contains a value.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from odradek.config import properties
from odradek.config.errors import ConfigError, raise_all
from odradek.config.regular_file import read_regular

PROVIDERS = "config.providers"
_WHOLE = re.compile(r'(?:^|")\$\{([A-Za-z0-9_.-]+):[^{}"]*\}(?:"|$)')
"""A variable that is a whole value, or the whole quoted value of an option."""
_VARIABLE = re.compile(r"\$\{([^{}:]+):(?:([^{}:]*):)?([^{}]*)\}")
LARGEST_FILE = 1 << 20
"""The largest size, in bytes, of a file from which values are read."""

Read = Callable[[str, str], str]
"""(path, key): the value. Raises _NotFound."""
Entry = tuple[str, str, str]
"""Key, text of the value, and where it was set."""


class _NotFound(Exception):
    """Why a variable has no value; completes "cannot replace ${...}: ..."."""


def resolved(entries: Sequence[Entry]) -> list[Entry]:
    """Replace the variables in all values, if the entries name providers. Raises ConfigError with all errors.

    Variables of providers that are not named stay as they are: a password may contain ``${``.
    """
    last = {name: (text, where) for name, text, where in entries}
    if not last.get(PROVIDERS, ("", ""))[0].strip():
        return list(entries)
    providers = _providers(last)
    replaced: list[Entry] = []
    errors: list[ConfigError] = []
    for name, text, where in entries:
        if name.startswith(PROVIDERS) or "${" not in text:
            replaced.append((name, text, where))
            continue
        try:
            replaced.append((name, _replace(text, providers), where))
        except _NotFound as problem:
            errors.append(ConfigError(name, None, str(problem), where))
    raise_all(errors)
    return replaced


def unreplaced(text: str) -> str | None:
    """The provider of a variable that is still in `text`, as the whole value or the whole quoted value of an option; None
    without one. A secret of this form is a mistake: the text of the variable, which is no secret, would be the secret."""
    found = _WHOLE.search(text.strip())
    return None if found is None else found[1]


def _replace(text: str, providers: Mapping[str, Read]) -> str:
    def value(match: "re.Match[str]") -> str:
        name, path, key = match.groups()
        read = providers.get(name)
        if read is None:
            return match.group()
        try:
            return read(path or "", key)
        except _NotFound as problem:
            raise _NotFound(f"cannot replace {match.group()}: {problem}") from None

    return _VARIABLE.sub(value, text)


def _providers(settings: Mapping[str, tuple[str, str]]) -> dict[str, Read]:
    text, where = settings[PROVIDERS]
    providers: dict[str, Read] = {}
    errors: list[ConfigError] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        key = f"{PROVIDERS}.{name}.class"
        class_name, class_where = settings.get(key, ("", where))
        make = _CLASSES.get(class_name.strip().removeprefix(_PACKAGE))
        if make is None:
            known = ", ".join(_PACKAGE + known for known in _CLASSES)
            errors.append(ConfigError(key, class_name or None, f"must be one of {known}", class_where))
            continue
        parameters = f"{PROVIDERS}.{name}.param."
        try:
            providers[name] = make(partial(_parameter, settings, parameters))
        except _NotFound as problem:
            errors.append(ConfigError(parameters.rstrip("."), None, str(problem), where))
    raise_all(errors)
    return providers


def _parameter(settings: Mapping[str, tuple[str, str]], prefix: str, name: str) -> str:
    return settings.get(prefix + name, ("", ""))[0]


def _allowed_directories(text: str) -> list[Path]:
    """The directories of ``allowed.paths``, without links; empty: all."""
    paths = [Path(part.strip()) for part in text.split(",") if part.strip()]
    for path in paths:
        if not path.is_absolute() or not path.exists():
            raise _NotFound(f"allowed.paths contains {path}, which must be an absolute path that exists")
    return [path.resolve() for path in paths]


def _allowed(path: Path, allowed: Sequence[Path]) -> Path:
    real = path.resolve()
    if allowed and not any(real.is_relative_to(directory) for directory in allowed):
        raise _NotFound(f"{path} is not below a directory in allowed.paths")
    return real


def _content(path: Path) -> bytes:
    try:
        data = read_regular(path, LARGEST_FILE + 1)
    except OSError as error:
        raise _NotFound(f"cannot read {path}: {error.strerror}") from None
    if len(data) > LARGEST_FILE:
        raise _NotFound(f"{path} is larger than {LARGEST_FILE} bytes")
    return data


def _file_provider(parameter: Callable[[str], str]) -> Read:
    """``${file:PATH:KEY}``: a key of a properties file."""
    allowed = _allowed_directories(parameter("allowed.paths"))

    def read(path: str, key: str) -> str:
        if not path:
            raise _NotFound("must be ${NAME:PATH:KEY} with the path of a properties file")
        data = _content(_allowed(Path(path), allowed))
        try:
            settings = properties.parse(properties.decode(data), path)
        except ConfigError as error:
            raise _NotFound(str(error)) from None
        values = {name: value for name, value, _ in settings}
        if key not in values:
            raise _NotFound(f"{path} has no key {key}")
        return values[key]

    return read


def _directory_provider(parameter: Callable[[str], str]) -> Read:
    """``${directory:DIR:FILE}``: the whole content of a file."""
    allowed = _allowed_directories(parameter("allowed.paths"))

    def read(path: str, key: str) -> str:
        if not path or not key or "/" in key or key in (".", ".."):
            raise _NotFound("must be ${NAME:DIRECTORY:FILE} with the name of a file in the directory")
        file = Path(path) / key
        real = _allowed(file, allowed)
        if not real.is_file():
            raise _NotFound(f"{file} is not a file")
        try:
            return _content(real).decode()
        except UnicodeDecodeError:
            raise _NotFound(f"{file} is not UTF-8 text") from None

    return read


def _environment_provider(parameter: Callable[[str], str]) -> Read:
    """``${env:NAME}``: a variable of the environment."""
    text = parameter("allowlist.pattern")
    if text:
        import re2  # only for this provider: keeps the start of the broker fast

        options = re2.Options()
        options.log_errors = False
        try:
            pattern = re2.compile(text, options)
        except re2.error as error:
            raise _NotFound(f"allowlist.pattern={text} is not a regular expression: {error}") from None

    def read(path: str, key: str) -> str:
        if path:
            raise _NotFound("must be ${NAME:VARIABLE}, without a path")
        if text and not pattern.fullmatch(key):
            raise _NotFound(f"{key} does not match allowlist.pattern")
        value = os.environ.get(key)
        if value is None:
            raise _NotFound(f"the environment has no variable {key}")
        return value

    return read


_PACKAGE = "org.apache.kafka.common.config.provider."
_CLASSES: dict[str, Callable[[Callable[[str], str]], Read]] = {
    "FileConfigProvider": _file_provider,
    "DirectoryConfigProvider": _directory_provider,
    "EnvVarConfigProvider": _environment_provider,
}
