"""One search of what sessions hold; its hits are streamed, and tools, commands and the page print them."""
