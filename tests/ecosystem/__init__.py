"""Systems around a broker, without changes to them, such as Kafka Connect; docs/operate/ecosystem.md lists them."""
