"""The table of configuration keys, Kafka's own names and meanings."""
