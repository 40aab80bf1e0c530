"""ctxfs.llm."""
