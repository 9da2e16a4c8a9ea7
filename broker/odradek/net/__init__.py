"""Listeners, the hand-over of sockets, connections, and frames between processes."""
