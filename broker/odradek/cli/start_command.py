"""``odradek start`` as a command of click: for its help, and for command lines that ``odradek.cli.start`` does not read."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import click

from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.lazy import WRONG_USAGE, usage_error_text
from odradek.cli.start_errors import fail_start


class StartCommand(HelpfulCommand):
    """A command whose usage errors are reported by `fail_start`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Like click's."""
        given = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            if extra.get("resilient_parsing"):
                raise
            config_file = next(iter(_values(given, "--config")), None)
            fail_start(usage_error_text(error), config_file, _values(given, "--set"), WRONG_USAGE)


def _values(arguments: Sequence[str], option: str) -> list[str]:
    """The values of an option on a command line that click does not accept."""
    following = [value for name, value in pairwise(arguments) if name == option]
    return following + [word.partition("=")[2] for word in arguments if word.startswith(f"{option}=")]
