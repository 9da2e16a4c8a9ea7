"""The shared mapping: its layout, locks and wake-ups, the process table, the meter pages."""
