"""`odradek group` and `odradek offsets`."""
