"""Replication of partitions between the brokers of a cluster."""
