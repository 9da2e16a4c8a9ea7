"""Where the installed command and ``python -m odradek.cli`` begin.

Until the command has set its own handlers, Ctrl-C ends the process as it ends a program in C: without a traceback.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, which is kept
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from odradek.cli.main import main

if __name__ == "__main__":
    main(prog_name="odradek")
