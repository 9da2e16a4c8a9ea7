"""Record batches and the older message sets: CRCs, parsing, checking, conversion."""
