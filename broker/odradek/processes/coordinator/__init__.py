"""The coordinator process: its event loop, its store thread, and what both use."""
