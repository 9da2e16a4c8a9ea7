"""The principals of `super.users`, which every authorizer allows everything."""


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
