"""The consumer groups in the coordinator process; `odradek.groups` has their rules."""
