"""One content as a file: encoding, blocks, reading, growing."""
