"""A real broker for tests: a context manager and a pytest fixture."""
