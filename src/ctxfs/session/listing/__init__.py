"""The sessions under a root, summed up, in a file that can always be made again."""
