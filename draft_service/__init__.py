"""The draft side: a small model that runs ahead and pushes token-tree nodes."""
