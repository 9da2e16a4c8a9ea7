"""Programs that write man pages and completion scripts when a package is built."""
