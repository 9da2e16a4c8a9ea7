"""The shared partition table and the wake-ups between processes."""
