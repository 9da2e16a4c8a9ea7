"""Tests of `odradek.mirror`."""
