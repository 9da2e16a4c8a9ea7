"""What the coordinator does about security: it publishes ACLs, certificates and keys, and derives credentials of tokens."""
