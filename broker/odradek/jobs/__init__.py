"""Batch work in PySpark: programs of their own, which import nothing else of the broker."""
