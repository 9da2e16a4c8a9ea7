"""Systems that live beside a broker, unchanged: Kafka Connect, MirrorMaker 2, and others; docs/ecosystem.md lists them."""
