"""One partition's log as the processes share it: appends, rolls, truncation, producers, flushes."""
