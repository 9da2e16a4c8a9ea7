"""The benchmark: this broker and Apache Kafka in one run, the same bytes, interleaved; see README.md beside this file."""
