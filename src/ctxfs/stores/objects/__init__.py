"""Sessions in an object store: `ObjectStore`, and the bucket that it needs."""
