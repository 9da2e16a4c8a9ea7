"""Parses the subset of Containerfiles that the images of this project use. What it does not know is an error."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path


class ContainerfileError(Exception):
    """The file is not one that this parser knows; the text has the path and the line number."""


@dataclass(frozen=True)
class Step:
    """One instruction of a stage that changes its file system or its settings.

    `words` are the arguments: of RUN one text, or the words of the JSON form; of COPY the sources and the target; of ENV, ARG
    and LABEL the name and the value, which is None for an ARG without a default.
    """

    line: int
    instruction: str
    words: tuple[str | None, ...]
    source_stage: str | None = None
    """Of COPY --from."""


@dataclass
class Stage:
    line: int
    base: str
    name: str | None
    steps: list[Step] = field(default_factory=list)


@dataclass
class Containerfile:
    path: Path
    arguments: dict[str, str | None]
    """The ARG lines before the first FROM, which FROM lines use."""
    stages: list[Stage]


def parse(path: Path) -> Containerfile:
    """:raises ContainerfileError: an instruction, an option or a form that this parser does not know."""
    found = Containerfile(path, {}, [])
    for line, text in logical_lines(path):
        instruction, _, rest = text.partition(" ")
        try:
            add(found, line, instruction, rest.strip())
        except ValueError as error:
            raise ContainerfileError(f"{path}:{line}: {error}") from None
    if not found.stages:
        raise ContainerfileError(f"{path}: there is no FROM")
    return found


def logical_lines(path: Path) -> list[tuple[int, str]]:
    """The instructions with the numbers of their first lines, without comments; a backslash at the end joins lines."""
    lines: list[tuple[int, str]] = []
    start, text = 0, ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and not text):
            continue
        start = start or number
        text += line.strip()
        if text.endswith("\\"):
            text = text[:-1]
            continue
        lines.append((start, text))
        start, text = 0, ""
    if text:
        raise ContainerfileError(f"{path}:{start}: the last line ends with a backslash")
    return lines


def add(found: Containerfile, line: int, instruction: str, rest: str) -> None:
    if instruction == "ARG" and not found.stages:
        name, value = argument(rest)
        found.arguments[name] = value
    elif instruction == "FROM":
        found.stages.append(stage(line, rest))
    elif instruction not in PARSERS:
        raise ValueError(f"{instruction} is not supported; the instructions are FROM, {', '.join(sorted(PARSERS))}")
    elif not found.stages:
        raise ValueError(f"{instruction} before the first FROM")
    else:
        found.stages[-1].steps.append(PARSERS[instruction](line, instruction, rest))


def stage(line: int, rest: str) -> Stage:
    parts = re.fullmatch(r"(\S+)(?: AS ([a-z][a-z0-9-]*))?", rest)
    if parts is None or parts[1].startswith("--"):
        raise ValueError(f"FROM {rest}: must be FROM IMAGE or FROM IMAGE AS NAME, without options")
    return Stage(line, parts[1], parts[2])


def argument(rest: str) -> tuple[str, str | None]:
    parts = re.fullmatch(r"([A-Z][A-Z0-9_]*)(?:=(\S*))?", rest)
    if parts is None:
        raise ValueError(f"ARG {rest}: must be ARG NAME or ARG NAME=VALUE")
    return parts[1], parts[2]


def arg_step(line: int, instruction: str, rest: str) -> Step:
    return Step(line, instruction, argument(rest))


def pair_step(line: int, instruction: str, rest: str) -> Step:
    """ENV and LABEL with one NAME=VALUE."""
    words = shlex.split(rest)
    name, equals, value = words[0].partition("=") if words else ("", "", "")
    if len(words) != 1 or not equals or not name:
        raise ValueError(f"{instruction} {rest}: must be one NAME=VALUE")
    return Step(line, instruction, (name, value))


def copy_step(line: int, instruction: str, rest: str) -> Step:
    words = shlex.split(rest)
    source_stage = None
    while words and words[0].startswith("--"):
        option, _, value = words.pop(0).partition("=")
        if option != "--from":
            raise ValueError(f"COPY {option} is not supported; the only option is --from=STAGE")
        source_stage = value
    if len(words) < 2:
        raise ValueError(f"COPY {rest}: must name sources and a target")
    if len(words) > 2 and not words[-1].endswith("/"):
        raise ValueError(f"COPY {rest}: the target of several sources must end with /")
    if source_stage is None and any(word.startswith(("/", "..")) for word in words[:-1]):
        raise ValueError(f"COPY {rest}: sources are relative to the project")
    return Step(line, instruction, tuple(words), source_stage)


def run_step(line: int, instruction: str, rest: str) -> Step:
    if rest.startswith(("--", "<<")):
        raise ValueError(f"RUN {rest.split()[0]} is not supported")
    return Step(line, instruction, tuple(json_words(instruction, rest)) if rest.startswith("[") else (rest,))


def exec_step(line: int, instruction: str, rest: str) -> Step:
    """ENTRYPOINT and CMD: only the form that needs no shell, so that the program receives signals."""
    return Step(line, instruction, tuple(json_words(instruction, rest)))


def json_words(instruction: str, rest: str) -> list[str]:
    try:
        words = json.loads(rest)
    except ValueError:
        words = None
    if not (isinstance(words, list) and words and all(isinstance(word, str) for word in words)):
        raise ValueError(f'{instruction} {rest}: must be a list, as ["command", "argument"]')
    return words


def health_step(line: int, instruction: str, rest: str) -> Step:
    """HEALTHCHECK with options and a command that needs no shell. The words are the options, "CMD", and the command."""
    options, separator, command = rest.partition("CMD ")
    words = shlex.split(options)
    if not separator or any(
        not re.fullmatch(r"--(interval|timeout|start-period)=\d+s|--retries=\d+", word) for word in words
    ):
        raise ValueError(
            f"{instruction} {rest}: must be options (--interval=10s, --timeout=, --start-period=, --retries=3) and CMD [...]"
        )
    return Step(line, instruction, (*words, "CMD", *json_words(instruction, command)))


def word_step(line: int, instruction: str, rest: str) -> Step:
    words = rest.split()
    if not words or (instruction != "EXPOSE" and len(words) != 1):
        raise ValueError(f"{instruction} {rest}: must have one argument")
    if instruction == "USER" and not re.fullmatch(r"[1-9]\d*:[1-9]\d*", rest):
        raise ValueError(
            f"USER {rest}: must be UID:GID in numbers, and not root's, so that runAsNonRoot can be checked"
        )
    if instruction in ("WORKDIR", "VOLUME") and not rest.startswith("/"):
        raise ValueError(f"{instruction} {rest}: must be an absolute path")
    if instruction == "EXPOSE" and not all(word.isdigit() for word in words):
        raise ValueError(f"EXPOSE {rest}: must be port numbers")
    return Step(line, instruction, tuple(words))


PARSERS = {
    "ARG": arg_step,
    "CMD": exec_step,
    "COPY": copy_step,
    "ENTRYPOINT": exec_step,
    "ENV": pair_step,
    "EXPOSE": word_step,
    "HEALTHCHECK": health_step,
    "LABEL": pair_step,
    "RUN": run_step,
    "STOPSIGNAL": word_step,
    "USER": word_step,
    "VOLUME": word_step,
    "WORKDIR": word_step,
}


def expand(text: str, values: dict[str, str]) -> str:
    """Replace ``${NAME}``. Raises ValueError for a name without a value."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise ValueError(f"${{{found[1]}}} has no value: it needs an ARG or ENV line in this stage")
        return values[found[1]]

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", value, text)
