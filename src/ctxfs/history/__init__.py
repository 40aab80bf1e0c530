"""A history that somebody else owns, such as a framework's: parts of it in, edits to it out."""
