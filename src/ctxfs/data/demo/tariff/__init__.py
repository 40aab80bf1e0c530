"""Bills of a small electricity supplier."""
