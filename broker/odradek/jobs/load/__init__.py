"""The Spark job that loads topics into Parquet files, each record once, and the checks of what it loaded.

Runs in the driver that ``odradek load`` starts. `offsets` decides which offsets a run reads, `commit_log` records what was
loaded, `publishing` moves files to where readers find them, `frames` and `files` are the parts that Spark runs, `job` puts them
in order. The command asks the brokers and hands over a `ClusterState`, because jobs import nothing else of the broker.
"""
