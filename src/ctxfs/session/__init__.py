"""A session on a store: the write-ahead log, its state, and what opening it finds."""
