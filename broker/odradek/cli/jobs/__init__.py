"""Commands that run jobs in Spark: `odradek load` and `odradek report`."""
