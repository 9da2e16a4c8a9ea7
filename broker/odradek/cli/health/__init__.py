"""`odradek doctor` and its checks."""
