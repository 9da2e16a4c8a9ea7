"""Reading and writing Kafka's messages: cursors with bounds, and the interpreter of the schemas' plans."""
