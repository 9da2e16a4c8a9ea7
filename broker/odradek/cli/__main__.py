"""Entry point of the installed command and of ``python -m odradek.cli``.

Until the command has set its signal handlers, Ctrl-C ends the process without a traceback, as it ends a C program.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise the parent ignores it; keep that
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from odradek.cli.main import main

if __name__ == "__main__":
    main(prog_name="odradek")
