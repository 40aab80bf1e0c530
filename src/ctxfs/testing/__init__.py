"""ctxfs.testing."""
