"""Logins, access control lists, delegation tokens: one file for each API, and what several of them share."""
