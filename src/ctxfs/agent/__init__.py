"""ctxfs.agent."""
