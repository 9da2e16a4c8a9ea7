"""The transaction coordinator, without I/O: the states of transactional ids, their records, and the end markers."""
