"""The requests that workers answer natively: Produce, Fetch, and those of groups."""
