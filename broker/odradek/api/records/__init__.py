"""Reading and deleting records: one file for each API, and what several of them share."""
