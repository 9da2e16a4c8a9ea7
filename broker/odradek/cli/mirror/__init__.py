"""`odradek mirror`."""
