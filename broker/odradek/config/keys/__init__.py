"""The rows of the configuration keys, one file per area. `config.table` joins them."""
