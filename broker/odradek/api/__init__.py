"""The table of the APIs that the broker serves, and their handlers, one file per API."""
