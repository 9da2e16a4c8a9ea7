"""The logs of `__consumer_offsets` and `__transaction_state`: how the coordinator loads and writes their partitions."""
