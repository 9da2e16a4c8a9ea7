"""Log compaction."""
