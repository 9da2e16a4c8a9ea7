"""A worker, which serves the connections of clients, and its parts."""
