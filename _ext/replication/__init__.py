"""Native code of the replica fetchers: which partitions a fetcher has, its requests, and the responses of the leader."""
