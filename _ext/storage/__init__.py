"""The files of logs: opening, recovery, look-ups, checkpoints."""
