"""Export and import: a session as one file; copies of a session in two places."""
