"""``odradek user``: list, describe, add, remove. Runs in the process of the command.

With --data-dir, the commands use the metadata store of a stopped broker, with --zookeeper and --config that of a cluster: this
is how the first user is created if every listener requires a login, and the user with which brokers log in to each other.
"""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import YES_OPTION, confirm, on_cluster
from odradek.cli.framework.principals import refuse_principal

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.clients.users import UserCredential
    from odradek.metadata.zookeeper_connection import ZookeeperOptions
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
ZOOKEEPER_OPTION = click.option(
    "-z",
    "--zookeeper",
    metavar="HOST:PORT,.../CHROOT",
    help="Act on the ZooKeeper of a cluster, as in zookeeper.connect, instead of on a running broker. No broker needs to run; "
    "those that run are notified. `add` creates the root of the cluster's nodes.",
)
CONFIG_OPTION = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="As --zookeeper, with the zookeeper.* keys of a broker's configuration: address, passwords and certificates.",
)


class StoreLocation(NamedTuple):
    """Which metadata store to use without a broker; all None: ask a running broker."""

    data_dir: str | None
    zookeeper: str | None
    config_file: str | None

    @property
    def is_broker(self) -> bool:
        return self == StoreLocation(None, None, None)


def on_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select a store; the function receives `place`."""

    @wraps(function)
    def run(*args: Any, data_dir: str | None, zookeeper: str | None, config_file: str | None, **options: Any) -> Any:
        if data_dir is not None and (zookeeper is not None or config_file is not None):
            fail(
                "give either --data-dir, for an embedded metadata store, or --zookeeper and --config, for that of a cluster"
            )
        return function(*args, place=StoreLocation(data_dir, zookeeper, config_file), **options)

    return DATA_DIR_OPTION(ZOOKEEPER_OPTION(CONFIG_OPTION(run)))


USER_ARGUMENT = click.argument("name", metavar="USER")


@click.group(cls=LazyGroup)
def user() -> None:
    """List, describe, add and remove users who log in with SCRAM.

    Users of the mechanism PLAIN are not in this list: they are in the broker's configuration file.
    """


@user.command("list")
@on_cluster
@on_store
def list_users(cluster: "Cluster", as_json: bool, place: StoreLocation) -> None:
    """List users and their credentials."""
    _show(cluster, as_json, place, None)


@user.command("describe")
@on_cluster
@on_store
@USER_ARGUMENT
def describe(cluster: "Cluster", as_json: bool, place: StoreLocation, name: str) -> None:
    """Show the credentials of a user: mechanisms and iterations. Nobody can read passwords or keys."""
    _show(cluster, as_json, place, name)


@user.command("add")
@on_cluster
@on_store
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
    place: StoreLocation,
    names: tuple[str, ...],
    iterations: int,
    password_file: Any,
    name: str,
) -> None:
    """Add a user, or change the password of a user.

    No option takes the password itself, because other users of the machine can read the arguments of a command.
    """
    from odradek.cli.framework.output import echo_json
    from odradek.clients import users

    refuse_principal(name, "USER")
    mechanisms = _mechanisms(names)
    password = _password(name, password_file)
    if place.is_broker:
        users.set_password(cluster, name, password, mechanisms, iterations)
    else:
        _in_store(place, lambda store: store.set_password(name, password, mechanisms, iterations), create=True)
    chosen = [mechanism.name for mechanism in mechanisms]
    if as_json:
        echo_json({"user": name, "mechanisms": chosen, "iterations": iterations})
    else:
        echo(f"set the password of user '{name}' for {' and '.join(chosen)}")


@user.command("remove")
@on_cluster
@on_store
@MECHANISM_OPTION
@YES_OPTION
@USER_ARGUMENT
def remove(
    cluster: "Cluster", as_json: bool, place: StoreLocation, names: tuple[str, ...], yes: bool, name: str
) -> None:
    """Remove the credentials of a user. Connections on which the user has logged in stay open."""
    from odradek.cli.framework.output import echo_json
    from odradek.clients import users

    mechanisms = [
        mechanism
        for mechanism in _mechanisms(names)
        if names or any(known.mechanism == mechanism.name for known in _credentials(cluster, place, name))
    ]
    confirm(f"This removes the login of user '{name}' with {' and '.join(one.name for one in mechanisms)}.", yes)
    if place.is_broker:
        users.remove(cluster, name, mechanisms)
    else:
        _in_store(place, lambda store: store.remove(name, mechanisms))
    removed = [mechanism.name for mechanism in mechanisms]
    if as_json:
        echo_json({"user": name, "removed": removed})
    else:
        echo(f"removed the login of user '{name}' with {' and '.join(removed)}")


def _show(cluster: "Cluster", as_json: bool, place: StoreLocation, name: str | None) -> None:
    from odradek.cli.framework.output import echo_json, print_table

    credentials = _credentials(cluster, place, name)
    if as_json:
        echo_json([credential._asdict() for credential in credentials])
        return
    print_table(("user", "mechanism", "iterations"), credentials, "no user has a SCRAM credential")


def _credentials(cluster: "Cluster", place: StoreLocation, name: str | None) -> "list[UserCredential]":
    """The credentials of a user, or of all users. The command fails if the user has none."""
    from odradek.clients import users

    if place.is_broker:
        return users.describe(cluster, None if name is None else [name])

    def look(store: Any) -> "tuple[list[UserCredential], list[UserCredential]]":
        found = store.credentials(name)
        return found, found or store.credentials(None)

    found, known = _in_store(place, look)
    if name is not None and not found:
        fail(users.no_credential(name, lambda: [credential.user for credential in known]))
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


Result = TypeVar("Result")


def _in_store(place: StoreLocation, work: Callable[[Any], Result], create: bool = False) -> Result:
    """Call `work` with the users in a metadata store; the command fails if that is not possible."""
    from odradek.cli.security.stopped_users import StoppedUsersError, stopped_users, users_in_zookeeper

    try:
        if place.data_dir is not None:
            with stopped_users(Path(place.data_dir), create) as store:
                return work(store)
        with users_in_zookeeper(_zookeeper(place), create) as store:
            return work(store)
    except StoppedUsersError as error:
        fail(error)


def _zookeeper(place: StoreLocation) -> "ZookeeperOptions":
    """How to connect to the ZooKeeper that the options name; the command fails if they name none."""
    from odradek.config.broker_config import load
    from odradek.config.errors import ConfigError
    from odradek.metadata.zookeeper import zookeeper_options
    from odradek.metadata.zookeeper_connection import ZookeeperOptions

    if place.config_file is None:
        return ZookeeperOptions(place.zookeeper or "")
    try:
        options = zookeeper_options(load(place.config_file, []))
    except ConfigError as error:
        fail(error)
    if place.zookeeper is not None:
        options = options._replace(servers=place.zookeeper)
    if not options.servers:
        fail(f"{place.config_file} does not set zookeeper.connect: add --zookeeper HOST:PORT/CHROOT")
    return options
