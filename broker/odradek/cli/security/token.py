"""``odradek token``: create, renew, expire, describe. Runs in the process of the command."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import YES_OPTION, confirm, on_cluster
from odradek.cli.framework.principals import USER_PRINCIPAL

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.clients.tokens import SecretToken

ID_ARGUMENT = click.argument("token_id", metavar="TOKEN_ID")


def _duration(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    from odradek.cli.framework.values import duration_ms

    try:
        return None if value is None else duration_ms(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group(cls=LazyGroup)
def token() -> None:
    """Create, renew, expire and describe delegation tokens, with which clients log in without the password of a user.

    The client must have logged in as a user (--command-config); a client that logged in with a token cannot manage tokens.
    """


@token.command("create")
@on_cluster
@click.option(
    "--owner",
    metavar="USER",
    type=USER_PRINCIPAL,
    help="Create the token for this user (default: the user who has logged in).",
)
@click.option(
    "--renewer",
    "renewers",
    metavar="USER",
    multiple=True,
    type=USER_PRINCIPAL,
    help="A user who may renew and expire the token, besides its owner. Repeatable.",
)
@click.option(
    "--max-lifetime",
    metavar="DURATION",
    callback=_duration,
    help="The time, such as 7d, after which the token cannot be renewed (default and maximum: "
    "delegation.token.max.lifetime.ms of the broker).",
)
def create(
    cluster: "Cluster", as_json: bool, owner: str | None, renewers: Sequence[str], max_lifetime: int | None
) -> None:
    """Create a token, and print its id and its password. Whoever knows both can log in as the owner."""
    from odradek.cli.framework.output import echo_json, when
    from odradek.clients import tokens

    if max_lifetime is not None and max_lifetime <= 0:
        fail("--max-lifetime must be greater than 0")
    made = tokens.create(cluster, owner, renewers, -1 if max_lifetime is None else max_lifetime)
    if as_json:
        echo_json(_shown(made, with_password=True))
        return
    echo(f"token id: {made.token.token_id}")
    echo(f"password: {made.password}")
    echo(f"owner: {made.token.owner}")
    echo(f"expires: {when(made.token.expires_ms)}, at the latest {when(made.token.max_ms)}")
    echo(
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{made.token.token_id}" password="{made.password}" tokenauth="true";'
    )


@token.command("describe")
@on_cluster
@click.option(
    "--owner",
    "owners",
    metavar="USER",
    multiple=True,
    type=USER_PRINCIPAL,
    help="Only tokens that this user owns, requested or may renew. Repeatable.",
)
@click.option("--show-passwords", is_flag=True, help="Also print the passwords of the tokens.")
def describe(cluster: "Cluster", as_json: bool, owners: Sequence[str], show_passwords: bool) -> None:
    """Show the tokens that the user who has logged in may see, oldest first."""
    from odradek.cli.framework.output import echo_json, print_table, when
    from odradek.clients import tokens

    found = tokens.describe(cluster, owners or None)
    if as_json:
        echo_json([_shown(one, show_passwords) for one in found])
        return
    titles = ["token id", "owner", "requester", "renewers", "issued", "expires", "latest expiry"]
    rows = [
        [
            one.token.token_id,
            one.token.owner,
            one.token.requester,
            list(one.token.renewers),
            when(one.token.issued_ms),
            when(one.token.expires_ms),
            when(one.token.max_ms),
            *([one.password] if show_passwords else []),
        ]
        for one in found
    ]
    print_table([*titles, *(["password"] if show_passwords else [])], rows, "there is no token that this user may see")


@token.command("renew")
@on_cluster
@click.option(
    "--period",
    metavar="DURATION",
    callback=_duration,
    help="The time from now at which the token expires (default and maximum: delegation.token.expiry.time.ms of the broker).",
)
@ID_ARGUMENT
def renew(cluster: "Cluster", as_json: bool, period: int | None, token_id: str) -> None:
    """Set the time at which a token expires."""
    from odradek.clients import tokens

    if period is not None and period <= 0:
        fail("--period must be greater than 0; `odradek token expire` removes a token")
    _report(as_json, token_id, tokens.renew(cluster, _find(cluster, token_id), -1 if period is None else period))


@token.command("expire")
@on_cluster
@click.option(
    "--after", metavar="DURATION", callback=_duration, help="Let the token expire after this time (default: at once)."
)
@YES_OPTION
@ID_ARGUMENT
def expire(cluster: "Cluster", as_json: bool, after: int | None, yes: bool, token_id: str) -> None:
    """Let a token expire. Without --after, no process of the broker accepts it when the command ends. Open connections stay
    open until the end of their sessions."""
    from odradek.clients import tokens

    if after is not None and after < 0:
        fail("--after must not be negative")
    found = _find(cluster, token_id)
    if after is None:
        confirm(f"This removes the token {token_id} of {found.token.owner}.", yes)
    expires_ms = tokens.expire(cluster, found, tokens.NOW if after is None else after)
    _report(as_json, token_id, expires_ms, removed=after is None)


def _find(cluster: "Cluster", token_id: str) -> "SecretToken":
    """The token with an id; its HMAC, which the requests need, is in the response that describes it."""
    from odradek.clients import tokens

    found = next((one for one in tokens.describe(cluster) if one.token.token_id == token_id), None)
    if found is None:
        fail(f"there is no token {token_id} that this user may see")
    return found


def _report(as_json: bool, token_id: str, expires_ms: int, removed: bool = False) -> None:
    from odradek.cli.framework.output import echo_json, when

    if as_json:
        echo_json({"token_id": token_id, "expires_ms": expires_ms})
    elif removed:
        echo(f"token {token_id} was removed")
    else:
        echo(f"token {token_id} expires at {when(expires_ms)}")


def _shown(found: "SecretToken", with_password: bool) -> dict[str, Any]:
    """A token as JSON."""
    shown = found.token._asdict()
    return shown | {"password": found.password} if with_password else shown
