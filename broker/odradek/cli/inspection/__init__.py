"""What several groups of commands read from a broker: its files on this machine, its metrics and its usage."""
