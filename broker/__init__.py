"""Odradek: a log broker that speaks Apache Kafka's wire protocol."""
