"""ctxfs keeps an LLM agent inside its context window without losing a byte."""
