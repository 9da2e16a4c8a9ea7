"""Batch jobs in PySpark: separate programs that import nothing else of the broker."""
