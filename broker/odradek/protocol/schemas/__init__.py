"""The schemas of Kafka's messages, one file per API."""
