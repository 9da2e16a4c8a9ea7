"""The rows of the configuration keys, a file for each area; `config.table` joins them."""
