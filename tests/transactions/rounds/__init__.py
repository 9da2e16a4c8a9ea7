"""Rounds of transactions under faults: clients of all kinds write and read, something fails, and the checker looks at
everything.

``python -m tests.transactions.rounds --rounds 100 --tv 2`` runs them; ``--help`` lists the options.
"""
