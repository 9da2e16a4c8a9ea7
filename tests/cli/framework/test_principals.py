"""How commands read principals and names of users: one rule, with the same message."""

import click
import pytest

from odradek.cli.framework.principals import (
    PRINCIPAL,
    USER_PRINCIPAL,
    USER_RESOURCE,
    Principal,
    problem_of,
    refuse_principal,
)
from odradek.cli.packaging.man import root_context, walk


@pytest.mark.parametrize("text", ["User:alice", "User:*", "User:CN=a:b,O=c", "Group:admins", "User:User:alice"])
def test_a_principal_is_taken_as_it_is(text):
    assert problem_of(text) is None and PRINCIPAL(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("carol", "did you mean 'User:carol'?"),
        ("user:carol", "did you mean 'User:carol'?"),
        ("USER:carol", "did you mean 'User:carol'?"),
        ("CN=a,O=b", "did you mean 'User:CN=a,O=b'?"),
        ("", "write such as User:alice"),
        (":carol", "write such as User:alice"),
        ("User:", "write such as User:alice"),
    ],
)
def test_the_message_names_the_principal_that_was_meant(text, meant):
    assert problem_of(text) == f"'{text}' is not a principal: {meant}"


def test_the_user_of_a_token_may_be_a_name_or_a_principal():
    assert USER_PRINCIPAL("bob") == USER_PRINCIPAL("User:bob") == "User:bob"
    with pytest.raises(click.BadParameter, match="did you mean 'User:bob'"):
        USER_PRINCIPAL("user:bob")


def test_the_resource_of_a_user_may_be_all_users():
    assert USER_RESOURCE("*") == "*" and USER_RESOURCE("User:bob") == "User:bob"
    with pytest.raises(click.BadParameter, match="did you mean 'User:bob'"):
        USER_RESOURCE("bob")


def test_a_principal_is_no_name_of_a_new_user():
    for name in ("alice", "CN=a", "Group:a"):
        refuse_principal(name, "USER")
    for name in ("User:alice", "user:alice"):
        with pytest.raises(click.BadParameter, match="did you mean 'alice'"):
            refuse_principal(name, "USER")


def test_every_option_for_principals_has_this_type():
    """An option that takes a principal says so in its name, its metavar or its help; patterns of usage have a type, too."""
    options = {
        f"{context.command_path} {parameter.opts[0]}": parameter
        for context in walk(root_context())
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
        and not parameter.is_flag
        and ("principal" in parameter.name or parameter.metavar in ("PRINCIPAL", "USER"))
    }
    assert len(options) >= 13
    assert {name for name, option in options.items() if not isinstance(option.type, Principal)} == set()
