"""Logs, segments, indexes, checkpoints and recovery in Kafka's on-disk formats."""
