"""The one table of APIs and their handlers, one file per API."""
