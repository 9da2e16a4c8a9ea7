"""Interfaces that the coordinators of groups and of transactions share: to the clock, and to the logs of their internal topics.

This package does no I/O; the coordinator process passes the implementations.
"""
