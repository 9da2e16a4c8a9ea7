"""The controller: topic changes, partition assignment, quotas and dynamic settings, stored in the metadata store."""
