"""The transactional ids in the coordinator process; `odradek.transactions` has their rules."""
