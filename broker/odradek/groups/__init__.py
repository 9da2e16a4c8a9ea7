"""Consumer groups: state machines without I/O, and their coordinator.

Runs in the coordinator process's loop; see docs/decisions/0012-groups.md.
"""
