"""Makes the names of the fault points known to Python; see faults.pxd."""
