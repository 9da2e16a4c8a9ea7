"""``odradek completion``: print the script that makes a shell complete the command. Runs in the process of the command.

click generates the scripts. They call the command itself whenever Tab is pressed, so they never become outdated.
"""

import click
from click.shell_completion import ShellComplete, get_completion_class

from odradek.cli.framework.command import HelpfulCommand

PROGRAM = "odradek"
VARIABLE = "_ODRADEK_COMPLETE"
"""The variable of the environment with which a script asks the command for completions; click derives it from the name."""
SHELLS = ("bash", "zsh", "fish")


def script(shell: str, command: click.Command) -> str:
    """The text of the script with which a shell in `SHELLS` completes a command.

    Reads nothing but click's template; the shell need not be installed.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(f"click has no completion for {shell}; the shells are {', '.join(SHELLS)}")
    # Not BashComplete.source, which runs bash to see its version.
    return ShellComplete.source(kind(command, {}, PROGRAM, VARIABLE)).strip() + "\n"


@click.command(cls=HelpfulCommand)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete commands, options and configuration keys.

    Names of topics, groups and transactional ids are completed only if ODRADEK_COMPLETE_NAMES=1 is set, because the command
    then connects to the cluster each time that Tab is pressed, and waits at most one second.

    \b
    In the file that the shell reads when it starts:
      eval "$(odradek completion bash)"          ~/.bashrc
      eval "$(odradek completion zsh)"           ~/.zshrc, after compinit
      odradek completion fish | source           ~/.config/fish/config.fish
    """
    click.echo(script(shell, click.get_current_context().find_root().command), nl=False)
