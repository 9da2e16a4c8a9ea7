"""Tests of `odradek backup`."""
