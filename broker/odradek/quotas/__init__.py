"""The quotas of clients: which limit applies to whom. Knows neither sockets nor processes."""
