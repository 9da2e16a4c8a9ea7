"""Starts the broker of a container: settings from environment variables, then `odradek start`; or runs another command.

The process becomes the supervisor, so that signals of the container reach it. A separate process creates the first topics
(`first_topics`), and then ends.

    python -m odradek.cli.container                      # start, with the file of the image
    python -m odradek.cli.container --set node.id=2      # start, with the file of the image and a setting
    python -m odradek.cli.container topic list -b kafka  # another command
"""

import os
import signal
import sys

CONFIG_FILE = "/etc/odradek/server.properties"  # `odradek.cli.health.bundle` knows it, too
INIT = 1

if os.getpid() == INIT:  # the kernel ignores signals to it that have no handler, so `podman stop` would have no effect
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def run(arguments: list[str]) -> None:
    """Start the broker, or run the command that the first argument names."""
    from odradek.cli.start import start_without_click
    from odradek.cli.start_errors import fail_start

    if arguments[:1] == ["start"]:
        del arguments[0]
    if arguments and not arguments[0].startswith("-"):
        from odradek.cli.main import main

        main(args=arguments, prog_name="odradek")
    options = arguments if _names_file(arguments) else ["--config", CONFIG_FILE, *arguments]
    if {"--help", "-h"}.intersection(options):
        from odradek.cli.main import main

        main(args=["start", *options], prog_name="odradek")
    from odradek.cli.container import first_topics
    from odradek.cli.container.variables import data_volume, environment_of
    from odradek.config.errors import ConfigError

    try:
        topics = first_topics.parse(os.environ)
        environment = environment_of(os.environ)
    except ConfigError as error:
        fail_start(error, CONFIG_FILE, ())
    volume = data_volume()
    if volume is not None and all(key not in ("log.dirs", "log.dir") for key, _, _ in environment.entries):
        place = ("log.dirs", f"{volume}/odradek", f"the volume at {volume}")
        environment = environment._replace(entries=(*environment.entries, place))
    if topics:
        first_topics.create_in_background(topics, options, environment)
    start_without_click(["start", *options], environment)
    from odradek.cli.main import main

    main(args=["start", *options], prog_name="odradek", obj=environment)


def _names_file(arguments: list[str]) -> bool:
    return any(word == "--config" or word.startswith("--config=") for word in arguments)


if __name__ == "__main__":
    run(sys.argv[1:])
