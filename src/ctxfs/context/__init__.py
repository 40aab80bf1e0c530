"""ctxfs.context."""
