"""For programs that you cannot change: an MCP server and a proxy, both on this machine only. Each needs its extra."""
