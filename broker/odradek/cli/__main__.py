"""Entry point of the installed command and of ``python -m odradek.cli``.

``--version`` and a plain ``start`` do not import click, which takes most of the time until a command begins.

Until the command has set its signal handlers, Ctrl-C ends the process without a traceback, as it ends a C program.
"""

import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise the parent ignores it; keep that
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run() -> None:
    """Execute the command line, and end the process."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        from odradek.cli.version import version_text

        try:
            print(version_text(), flush=True)
            return
        except OSError:
            pass  # main() below reports the error
    if arguments[:1] == ["start"]:
        from odradek.cli.start import start_without_click

        start_without_click(arguments)
    from odradek.cli.main import main

    main(prog_name="odradek")


if __name__ == "__main__":
    run()
