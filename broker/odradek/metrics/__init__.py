"""The broker's metrics: read from the meter pages, named, published over HTTP, and written to the usage spool."""
