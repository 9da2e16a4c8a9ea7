"""The schemas of Kafka's messages, a file for each API."""
