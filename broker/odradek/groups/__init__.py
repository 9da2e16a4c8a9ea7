"""Consumer groups: state machines without I/O, and the coordinator that owns them.

Runs in the coordinator process's loop; see docs/decisions/0012-groups.md.
"""
