"""The one exception of the release scripts."""


class ReleaseFailed(Exception):
    """The release cannot be built. The text names what is wrong, and what would be right."""
