"""Producers and transactions: one file for each API, and what several of them share."""
