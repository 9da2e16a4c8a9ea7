"""The program of the container image: `python -m odradek.cli.container` (docs/operate/container.md). Only the image uses it."""
