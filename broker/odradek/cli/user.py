"""``odradek user``: list, describe, add, remove. Runs in the process of the command.

With --data-dir, the commands use the metadata store of a stopped broker: this is how the first user of a broker is created on
which every listener requires a login.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.failure import fail
from odradek.cli.lazy import LazyGroup
from odradek.cli.options import YES_OPTION, confirm, on_cluster

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.clients.users import UserCredential
    from odradek.security.sasl.scram_credential import ScramMechanism

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISM_OPTION = click.option(
    "--mechanism",
    "names",
    type=click.Choice(MECHANISMS, case_sensitive=False),
    multiple=True,
    help="Act on the credential for this mechanism only (default: both mechanisms). Repeatable.",
)
DATA_DIR_OPTION = click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Act on the embedded metadata store of a stopped broker with this first log directory, instead of a running broker. "
    "`add` creates the directory and the store if they do not exist.",
)
USER_ARGUMENT = click.argument("name", metavar="USER")


@click.group(cls=LazyGroup)
def user() -> None:
    """List, describe, add and remove users who log in with SCRAM.

    Users of the mechanism PLAIN are not in this list: they are in the broker's configuration file.
    """


@user.command("list")
@on_cluster
@DATA_DIR_OPTION
def list_users(cluster: "Cluster", as_json: bool, data_dir: str | None) -> None:
    """List users and their credentials."""
    _show(cluster, as_json, data_dir, None)


@user.command("describe")
@on_cluster
@DATA_DIR_OPTION
@USER_ARGUMENT
def describe(cluster: "Cluster", as_json: bool, data_dir: str | None, name: str) -> None:
    """Show the credentials of a user: mechanisms and iterations. Nobody can read passwords or keys."""
    _show(cluster, as_json, data_dir, name)


@user.command("add")
@on_cluster
@DATA_DIR_OPTION
@MECHANISM_OPTION
@click.option(
    "--iterations",
    type=click.IntRange(4096, 16384),
    default=4096,
    show_default=True,
    help="Number of rounds that a client computes for each login, and an attacker for each guess. With another number than "
    "4096, an attacker can find out whether the user exists.",
)
@click.option(
    "--password-file",
    type=click.File("r"),
    metavar="FILE",
    help="Read the password from the first line of this file; - for standard input. Without it, the command asks for it.",
)
@USER_ARGUMENT
def add(
    cluster: "Cluster",
    as_json: bool,
    data_dir: str | None,
    names: tuple[str, ...],
    iterations: int,
    password_file: Any,
    name: str,
) -> None:
    """Add a user, or change the password of a user.

    No option takes the password itself, because other users of the machine can read the arguments of a command.
    """
    from odradek.cli.output import echo_json
    from odradek.clients import users

    mechanisms = _mechanisms(names)
    password = _password(name, password_file)
    if data_dir is None:
        users.set_password(cluster, name, password, mechanisms, iterations)
    else:
        _in_store(data_dir, lambda store: store.set_password(name, password, mechanisms, iterations), create=True)
    chosen = [mechanism.name for mechanism in mechanisms]
    if as_json:
        echo_json({"user": name, "mechanisms": chosen, "iterations": iterations})
    else:
        click.echo(f"set the password of user '{name}' for {' and '.join(chosen)}")


@user.command("remove")
@on_cluster
@DATA_DIR_OPTION
@MECHANISM_OPTION
@YES_OPTION
@USER_ARGUMENT
def remove(
    cluster: "Cluster", as_json: bool, data_dir: str | None, names: tuple[str, ...], yes: bool, name: str
) -> None:
    """Remove the credentials of a user. Connections on which the user has logged in stay open."""
    from odradek.cli.output import echo_json
    from odradek.clients import users

    mechanisms = [
        mechanism
        for mechanism in _mechanisms(names)
        if names or any(known.mechanism == mechanism.name for known in _credentials(cluster, data_dir, name))
    ]
    confirm(f"This removes the login of user '{name}' with {' and '.join(one.name for one in mechanisms)}.", yes)
    if data_dir is None:
        users.remove(cluster, name, mechanisms)
    else:
        _in_store(data_dir, lambda store: store.remove(name, mechanisms))
    removed = [mechanism.name for mechanism in mechanisms]
    if as_json:
        echo_json({"user": name, "removed": removed})
    else:
        click.echo(f"removed the login of user '{name}' with {' and '.join(removed)}")


def _show(cluster: "Cluster", as_json: bool, data_dir: str | None, name: str | None) -> None:
    from odradek.cli.output import echo_json, print_table

    credentials = _credentials(cluster, data_dir, name)
    if as_json:
        echo_json([credential._asdict() for credential in credentials])
        return
    print_table(("user", "mechanism", "iterations"), credentials, "no user has a SCRAM credential")


def _credentials(cluster: "Cluster", data_dir: str | None, name: str | None) -> "list[UserCredential]":
    """The credentials of a user, or of all users. The command fails if the user has none."""
    from odradek.clients import users

    if data_dir is None:
        return users.describe(cluster, None if name is None else [name])
    found: list[UserCredential] = _in_store(data_dir, lambda store: store.credentials(name))
    if name is not None and not found:
        fail(f"user '{name}' has no SCRAM credential")
    return found


def _mechanisms(names: Sequence[str]) -> "list[ScramMechanism]":
    from odradek.security.sasl.scram_credential import BY_NAME

    return [BY_NAME[name] for name in dict.fromkeys(name.upper() for name in (names or MECHANISMS))]


def _password(name: str, file: Any) -> str:
    """The password, from a file or from the terminal."""
    if file is not None:
        password = str(file.readline()).rstrip("\r\n")
        if not password:
            fail(f"{file.name} contains no password in its first line")
        return password
    if not sys.stdin.isatty():
        fail(
            "standard input is not a terminal: add --password-file FILE, or --password-file - to read the password from it"
        )
    entered: str = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    return entered


def _in_store(data_dir: str, work: Callable[[Any], Any], create: bool = False) -> Any:
    """Call `work` with the users in the store of a stopped broker; the command fails if that is not possible."""
    from odradek.cli.stopped_users import StoppedUsersError, stopped_users

    try:
        with stopped_users(Path(data_dir), create) as store:
            return work(store)
    except StoppedUsersError as error:
        fail(error)
