"""One module for each format of recordings; ``table`` lists them, and reads a file by the one that it is in."""
