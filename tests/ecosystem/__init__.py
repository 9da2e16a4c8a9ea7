"""Systems around a broker, without changes to them: Kafka Connect, MirrorMaker 2, and others; docs/ecosystem.md lists them."""
