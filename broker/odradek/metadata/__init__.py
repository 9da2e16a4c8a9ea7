"""The metadata store: a tree of nodes, its embedded implementation, and the formats of the nodes."""
