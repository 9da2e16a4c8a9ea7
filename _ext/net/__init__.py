"""Connections of clients, and the stream between workers and coordinator."""
