"""ctxfs.storage."""
