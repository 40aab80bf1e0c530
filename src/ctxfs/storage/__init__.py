"""Where sessions live: the store protocol, local disk and memory."""
