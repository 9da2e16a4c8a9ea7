"""The periodic work of the cleaner process on logs: retention, compaction, checkpoints, and the watch over disk space."""
