"""The transaction coordinator, without I/O: states of transactional ids, their records, and the markers of their ends."""
