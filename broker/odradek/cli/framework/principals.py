"""Principals and users on the command line: one rule and one message for all commands. Runs in the process of the command.

ACLs name principals, such as User:alice. Logins and quotas name users, such as alice.
"""

from typing import Any

import click

_TYPE = "User"


def problem_of(text: str) -> str | None:
    """Why a text is not a principal, with the principal that was probably meant; None if it is one."""
    kind, colon, name = text.partition(":")
    if not colon:
        kind, name = _TYPE, text
    elif kind.lower() == _TYPE.lower():
        kind = _TYPE
    principal = f"{kind}:{name}"
    if principal == text and kind and name:
        return None
    meant = f"did you mean '{principal}'?" if kind and name else "write such as User:alice"
    return f"'{text}' is not a principal: {meant}"


def refuse_principal(text: str, option: str) -> None:
    """Refuse a principal as the name of a new user: the principal of a user named User:alice is User:User:alice."""
    kind, colon, name = text.partition(":")
    if colon and kind.lower() == _TYPE.lower():
        raise click.BadParameter(
            f"'{text}' is a principal, not the name of a user: did you mean '{name}'?", param_hint=option
        )


class Principal(click.ParamType[str]):
    """A principal as ACLs name it, such as User:alice."""

    name = "principal"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> str:
        """The text as it is. Raises BadParameter."""
        problem = problem_of(value)
        if problem is not None:
            self.fail(problem, parameter, context)
        return str(value)


class UserResource(Principal):
    """The name of a resource of type USER: a principal, or the wildcard."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> str:
        """The text as it is. Raises BadParameter."""
        return "*" if value == "*" else super().convert(value, parameter, context)


class UserPrincipal(Principal):
    """The principal of a user, from the user's name or the principal itself."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> str:
        """alice and User:alice are User:alice. Raises BadParameter."""
        is_principal = value.lower().startswith(f"{_TYPE.lower()}:")
        return super().convert(value if is_principal else f"{_TYPE}:{value}", parameter, context)


class PrincipalPattern(Principal):
    """A pattern of principals with wildcards; a name without a type or a wildcard matches no principal."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> str:
        """The text as it is. Raises BadParameter."""
        from odradek.metrics.pages import OTHER

        if value in ("", OTHER) or any(character in value for character in "*?["):
            return str(value)
        return super().convert(value, parameter, context)


PRINCIPAL = Principal()
USER_RESOURCE = UserResource()
USER_PRINCIPAL = UserPrincipal()
PRINCIPAL_PATTERN = PrincipalPattern()
