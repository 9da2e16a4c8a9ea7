"""The mirror: copies topics of one cluster into another without decompression or recompression (docs/decisions/0041-mirror.md).

Runs in the process of `odradek mirror run`; nothing of the broker imports it.
"""
