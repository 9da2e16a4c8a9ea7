"""Groups and their offsets: one file for each API, and what several of them share."""
