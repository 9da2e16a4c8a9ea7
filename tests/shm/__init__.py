"""The shared partition table: what it promises to every process, held against a model, other processes and their deaths."""
