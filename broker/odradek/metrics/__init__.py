"""What the broker counts: read from the meter pages, named, published, spooled."""
