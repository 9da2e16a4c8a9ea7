"""What every command is built of: groups, options, output, errors and signals."""
