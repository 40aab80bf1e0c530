"""What the model sees instead of a content that was evicted: text, digest, excerpts."""
