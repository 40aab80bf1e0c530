"""ctxfs.tools."""
