"""The broker's processes: a file for each main function, and the parts of which the processes consist. Only this package may
compose the others."""
