"""What the cleaner does to logs: retention, compaction, checkpoints, and the watch over disk space."""
