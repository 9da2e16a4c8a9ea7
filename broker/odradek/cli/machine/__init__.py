"""Commands about the brokers and directories of this machine, and shell completion."""
