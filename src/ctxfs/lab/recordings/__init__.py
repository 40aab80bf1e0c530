"""Sessions that other agents recorded, as values: their formats, where they are found, and what was billed."""
