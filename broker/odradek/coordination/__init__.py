"""What the coordinators of groups and of transactions share: interfaces to the clock and to the logs of their internal topics.

Without I/O: the coordinator process passes what does it.
"""
