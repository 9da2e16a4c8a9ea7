"""The tree-shaped metadata store and its back ends."""
