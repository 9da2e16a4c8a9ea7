"""Tests of the controller of a cluster."""
