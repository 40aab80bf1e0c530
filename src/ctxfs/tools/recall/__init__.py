"""Tools with which the model searches everything that was ever in its session, and keeps notes."""
