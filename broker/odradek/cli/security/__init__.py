"""`odradek acl`, `certificate`, `quota`, `token` and `user`."""
