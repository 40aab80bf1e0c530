"""The workspace: whole tool results as artifacts that are found and read by id, by lines and by pattern."""
