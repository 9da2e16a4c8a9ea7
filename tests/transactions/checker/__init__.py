"""A checker of transactions after Jepsen's: it finds the anomalies in a history of producers and read_committed
readers.

`history` describes what clients did and saw, `anomalies` finds what Kafka's guarantees do not allow. Both are pure.
"""
