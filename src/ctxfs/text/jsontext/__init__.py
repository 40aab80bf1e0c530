"""JSON as text: an exact codec, whether a text is JSON, streams of it, its shape, paths into it."""
