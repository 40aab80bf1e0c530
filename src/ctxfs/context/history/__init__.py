"""A history that a framework owns: its parts in, edits to it out."""
