"""The nightly usage and capacity report: from the spool or Prometheus to Parquet tables, and from these to a page.

Runs in the process that calls it (``odradek report usage``, ``python -m odradek.jobs.usage_report`` or ``spark-submit``)
and in Spark's Python workers; never in a process of the broker. `job` runs the steps; `tables` defines the Parquet tables.
"""
