"""Names of other tools (kcat, rpk, Kafka's scripts) that this command accepts: of options, of arguments, of commands.

Pure functions on the words of a command line. A name of the command itself always has precedence. Help and completion show only
the command's own names.
"""

from collections.abc import Iterator, Mapping, Sequence

import click

OTHER_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "servers": ("--brokers", "--broker-list", "--bootstrap-servers"),
    "start": ("-o", "--offset"),
    "limit": ("-c", "--num", "--max-messages"),
    "as_json": ("-J",),
    "partitions": ("--partition-count",),
    "replication_factor": ("--replicas",),
    "configs": ("--topic-config",),
}
"""Names of options of kcat, rpk and Kafka's scripts that mean the same, by the name of the parameter: `--from` and
`--config` mean different things in different commands."""
OTHER_FLAGS: Mapping[str, Mapping[str, str]] = {
    "start": {"--from-beginning": "beginning"},
    "position": {"--to-earliest": "earliest", "--to-latest": "latest", "--to-current": "current"},
}
"""Options of Kafka's scripts without a value, and the value of this command's option, by the name of the parameter."""
INSTEAD: Mapping[tuple[str, str], str] = {
    ("odradek start", "--port"): "--set listeners=PLAINTEXT://:PORT",
    ("odradek start", "--listeners"): "--set listeners=PLAINTEXT://:PORT",
    ("odradek start", "--data-dir"): "--set log.dirs=DIR",
    ("odradek start", "--log-dirs"): "--set log.dirs=DIR",
    ("odradek start", ""): "--config FILE",
}
"""What to write instead of an option of other brokers, by the command and the option; "" is an argument."""
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "topic": ("-t", "--topic"),
    "topics": ("-t", "--topic"),
    "group_id": ("-g", "--group"),
    "group_ids": ("-g", "--group"),
}
"""Options of other tools for values that are arguments in this command, by the name of the parameter."""
OTHER_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "ls": ("list",),
    "rm": ("delete", "remove"),
    "del": ("delete", "remove"),
    "info": ("describe",),
    "show": ("describe",),
    "new": ("create", "add"),
}
_WORDS = {"producer": "produce", "consumer": "consume", "kafka": "", "console": "", "sh": "", "configs": "config"}
_VERBS = {"get": "list", "ls": "list", "rm": "delete", "remove": "delete", "show": "describe", "info": "describe"}
_MEANT = {"broker": "odradek cluster describe", "lag": "odradek group list", "seek": "odradek group reset-offsets"}
"""What people call something that a command with another name shows."""


def own_names(command: click.Command, words: Sequence[str]) -> list[str]:
    """The words of a command line with the command's own names. Words after `--` and values of options stay as they are."""
    own = {name: option for option in command.params if isinstance(option, click.Option) for name in option.opts}
    options = {
        other: option.opts[-1]
        for option in own.values()
        for other in OTHER_OPTIONS.get(option.name or "", ())
        if other not in own
    }
    flags = {
        other: [name, value]
        for name, option in own.items()
        for other, value in OTHER_FLAGS.get(option.name or "", {}).items()
        if other not in own
    }
    argument = next(
        (
            parameter.name
            for parameter in command.params
            if isinstance(parameter, click.Argument) and parameter.name in ARGUMENTS
        ),
        None,
    )
    of_argument = {other for other in ARGUMENTS.get(argument or "", ()) if other not in own}
    arguments: list[str] = []
    rest: list[str] = []
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if word == "--":
            rest.append(word)
            break
        if word in of_argument:
            arguments += [following] if (following := next(left, None)) is not None else []
        elif equals and name in of_argument and name.startswith("--"):
            arguments.append(value)
        elif word in own and _takes_value(own[word]):
            rest += [word, *_value(left)]
        elif word in flags:
            rest += flags[word]
        elif word in options:
            rest += [options[word], *(_value(left) if _takes_value(own[options[word]]) else ())]
        elif equals and name in options and name.startswith("--"):
            rest.append(f"{options[name]}={value}")
        else:
            rest.append(word)
    return [*arguments, *rest, *left]


def _takes_value(option: click.Option) -> bool:
    return not (option.is_flag or option.count)


def _value(left: Iterator[str]) -> list[str]:
    value = next(left, None)
    return [] if value is None else [value]


def own_command(name: str, known: Sequence[str]) -> str:
    """The command that a name means: without the "s" of a plural, or another tool's name; the name itself if there is none."""
    if name in known:
        return name
    candidates = (name.removesuffix("s"), *OTHER_COMMANDS.get(name, ()))
    return next((candidate for candidate in candidates if candidate in known), name)


def command_of_words(name: str, paths: Sequence[str]) -> str | None:
    """The command that consists of the words of a name, in any order: `odradek topic list` for `list-topics`, `odradek consume`
    for `kafka-console-consumer`; or whose last word the name is, if there is only one such; None if there is none.

    :param paths: all commands but groups, such as "odradek topic list".
    """
    given = {_WORDS.get(word, word.removesuffix("s")) for word in name.replace(".", "-").split("-")} - {""}
    groups = [path.rpartition(" ")[0] for path in paths]
    singular = {path: {word.removesuffix("s") for word in path.split()[1:]} for path in (*groups, *paths)}
    for wanted in (given, {_VERBS.get(word, word) for word in given}):
        for path, words in singular.items():
            if given and words == wanted:
                return path
    ends = [path for path in paths if path.rpartition(" ")[2] == name and path.count(" ") > 1]
    return ends[0] if len(ends) == 1 else _MEANT.get(name.removesuffix("s"))
