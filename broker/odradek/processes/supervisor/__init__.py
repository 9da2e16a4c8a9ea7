"""The supervisor and the start of a broker. It imports the other programs by the names in `processes/table.py` only."""
