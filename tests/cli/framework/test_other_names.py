"""Names that users of kcat, rpk and Kafka's scripts type: options, topics as options, plurals of commands, hints."""

import click
import pytest

from odradek.cli.framework.examples import EXAMPLES
from odradek.cli.framework.other_names import (
    ARGUMENTS,
    INSTEAD,
    OTHER_COMMANDS,
    OTHER_FLAGS,
    OTHER_OPTIONS,
    command_of_words,
    own_command,
    own_names,
)
from odradek.cli.main import main


def command_at(path: str) -> click.Command:
    """The command with that path below `odradek`."""
    command: click.Command = main
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None, path
        command = found
    return command


COMMANDS = [path.removeprefix("odradek ") for path in EXAMPLES if path != "odradek"]


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [
        ("topic create", "-t orders -p 3", "orders -p 3"),
        ("topic create", "--topic orders --topic=events -p 3 -r 1", "orders events -p 3 -r 1"),
        ("topic describe", "--brokers a:1 -t orders", "orders --bootstrap-server a:1"),
        ("topic describe", "--broker-list=a:1 orders", "--bootstrap-server=a:1 orders"),
        ("consume", "-b a:1 -t orders -o beginning -c 5 -e -J", "orders -b a:1 --from beginning --max 5 -e --json"),
        ("consume", "orders -g billing -p 0", "orders -g billing -p 0"),  # its own -g and -p
        ("produce", "file -t orders", "orders file"),
        ("produce", "orders -k -t", "orders -k -t"),  # the value of an option
        ("produce", "-t orders -- -t", "orders -- -t"),
        ("produce", "-t", ""),
        ("group describe", "-g billing", "billing"),
        ("group describe", "--group billing --members", "billing --members"),
        ("group reset-offsets", "billing -t orders --to earliest", "billing -t orders --to earliest"),  # its own -t
        ("doctor", "--brokers a:1", "--bootstrap-server a:1"),
        ("topic create", "--topic-config a=b orders", "--config a=b orders"),
        ("start", "--topic-config a=b", "--topic-config a=b"),  # its --config is a file
        ("consume", "orders --from-beginning -e", "orders --from beginning -e"),
        ("group reset-offsets", "billing --to-earliest --dry-run", "billing --to earliest --dry-run"),
        ("load run", "-o 1d", "-o 1d"),  # its --from is a time
    ],
)
def test_options_of_other_tools(path: str, given: str, expected: str) -> None:
    assert own_names(command_at(path), given.split()) == expected.split()


@pytest.mark.parametrize("path", COMMANDS)
def test_a_commands_own_names_stay_as_they_are(path: str) -> None:
    command = command_at(path)
    if isinstance(command, click.Group):
        return
    words = [name for option in command.params if isinstance(option, click.Option) for name in option.opts]
    for word in words:
        assert own_names(command, [word, "value"]) == [word, "value"]


def test_every_name_of_the_tables_is_used_by_a_command() -> None:
    commands = [command_at(path) for path in COMMANDS]
    options = {
        parameter.name for command in commands for parameter in command.params if isinstance(parameter, click.Option)
    }
    arguments = {
        parameter.name for command in commands for parameter in command.params if isinstance(parameter, click.Argument)
    }
    assert set(OTHER_OPTIONS) | set(OTHER_FLAGS) <= options
    assert {path for path, _ in INSTEAD} <= set(EXAMPLES)
    assert set(ARGUMENTS) <= arguments
    names = {path.rpartition(" ")[2] for path in COMMANDS}
    assert all(names.intersection(targets) for targets in OTHER_COMMANDS.values())


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("topics", ["topic", "group"], "topic"),
        ("topic", ["topic", "topics"], "topic"),
        ("topics", ["topic", "topics"], "topics"),
        ("ls", ["list", "create"], "list"),
        ("rm", ["remove", "add"], "remove"),
        ("rm", ["delete", "create"], "delete"),
        ("ls", ["ls", "list"], "ls"),
        ("ls", ["create"], "ls"),
        ("s", [], "s"),
    ],
)
def test_plurals_and_short_names_of_commands(name: str, known: list[str], expected: str) -> None:
    assert own_command(name, known) == expected


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["topics", "--help"], "Usage: odradek topic [OPTIONS] COMMAND [ARGS]..."),
        (["groups", "ls", "--help"], "Usage: odradek group list"),
        (["help"], "Usage: odradek [OPTIONS] COMMAND [ARGS]..."),
        (["help", "topics", "create"], "Usage: odradek topic create"),
        (["version"], "odradek "),
        (["users", "rm", "--help"], "Usage: odradek user remove"),
    ],
)
def test_the_help_of_such_a_name_has_the_commands_own_name(
    arguments: list[str], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args=arguments, prog_name="odradek")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(output)


def error_of(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints on standard error, in one line, when it ends with this exit code."""
    with pytest.raises(SystemExit) as ended:
        main(args=arguments, prog_name="odradek")
    assert ended.value.code == code
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["list-topics"], "did you mean 'odradek topic list'?"),
        (["create-topic"], "did you mean 'odradek topic create'?"),
        (["kafka-topics.sh"], "did you mean 'odradek topic'?"),
        (["kafka-console-consumer"], "did you mean 'odradek consume'?"),
        (["topic", "produce"], "did you mean 'odradek produce'?"),
        (["topci"], "did you mean 'topic'?"),
        (["describe", "topic", "orders"], "did you mean 'odradek topic describe'?"),
        (["get", "topics"], "did you mean 'odradek topic list'?"),
        (["remove-user"], "did you mean 'odradek user remove'?"),
        (["reset-offsets", "billing"], "did you mean 'odradek group reset-offsets'?"),
        (["brokers"], "did you mean 'odradek cluster describe'?"),
        (["group", "lag", "billing"], "did you mean 'odradek group list'?"),
        (["topic", "crate"], "did you mean 'create'?"),
        (["xyzzy"], "the commands are "),
    ],
)
def test_a_wrong_name_suggests_the_right_one(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = arguments[1] if arguments[0] in ("topic", "group") else arguments[0]
    assert f"no such command '{wrong}'; {hint}" in error_of(arguments, 2, capsys)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--json", "topic", "list"], "options of a command follow its name, as in 'odradek topic list --json'"),
        (["--versoin"], "did you mean '--version'?"),
        (["start", "--port", "9093"], "write --set listeners=PLAINTEXT://:PORT"),
        (["start", "--data-dir", "d"], "write --set log.dirs=DIR"),
        (["start", "server.properties"], "write --config FILE"),
    ],
)
def test_an_option_of_elsewhere_names_what_to_write(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hint in error_of(arguments, 2, capsys)


def test_a_plural_alone_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert "127.0.0.1:1" in error_of(["-b", "127.0.0.1:1", "topics"], 1, capsys)  # it has tried to list the topics


def test_commands_by_their_words() -> None:
    assert command_of_words("describe-groups", list(EXAMPLES)) == "odradek group describe"
    assert command_of_words("kafka", list(EXAMPLES)) is None
