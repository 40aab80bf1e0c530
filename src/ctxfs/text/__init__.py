"""JSON as text, UTF-8, images, and long work in steps."""
