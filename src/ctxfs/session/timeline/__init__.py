"""What was in a session's context at every call of the model, and what changed from one call to the next."""
