"""The main functions of the broker's processes, one file per process. Only this package may compose the others."""
