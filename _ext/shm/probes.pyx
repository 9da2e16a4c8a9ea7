"""Makes the enum in probes.pxd visible to Python: the names of the words are those of its members, in lower case."""

PROBE_WORDS = {probe.name.lower(): int(probe) for probe in Probe}
"""The index of each word by its name."""
