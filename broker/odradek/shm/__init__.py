"""The shared partition table, the checkpoints of log directories, and the settings that change at run time."""
