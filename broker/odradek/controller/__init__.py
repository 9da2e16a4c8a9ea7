"""Topic changes and partition assignment on top of the metadata store."""
