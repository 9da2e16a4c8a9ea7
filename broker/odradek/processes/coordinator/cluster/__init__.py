"""The part of the coordinator process that only a broker with ZooKeeper imports."""
