"""The table of configuration keys, with Kafka's names and meanings, and the configuration of a broker."""
