"""`odradek config`."""
