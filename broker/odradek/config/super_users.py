"""The principals of `super.users`, which every authorizer allows everything."""


def doubtful_super_users(users: tuple[str, ...]) -> list[str]:
    """A warning for each super user that cannot be the principal of a client."""
    return [
        f"super.users: {user!r} is no principal of any client, so it allows nobody anything; principals begin with User:, and "
        "are separated by semicolons"
        for user in users
        if not user.startswith("User:") or ",User:" in user
    ]


def parse_super_users(text: str) -> tuple[str, ...]:
    """The principals of `super.users`, separated by semicolons, since names may contain commas.

    :raises ValueError: an element is not a principal. The message says what is wrong.
    """
    users = tuple(user.strip() for user in text.split(";") if user.strip())
    for user in users:
        kind, separator, name = user.partition(":")
        if not separator or not kind or not name:
            raise ValueError(
                f"{user!r} is not a principal: super.users must be principals such as User:admin, separated by semicolons"
            )
    return users
