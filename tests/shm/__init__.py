"""The shared partition table: its guarantees to every process, checked with a model, with other processes and with their
deaths.
"""
