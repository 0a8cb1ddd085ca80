"""How the llama.cpp backend sizes contexts and passes. Plain numbers: imports nothing."""

PASS_TOKENS = 512
PASS_ROWS = 256
"""A longer pass is run in pieces of so many tokens, of which so many have rows."""

PADDING = 256
SPARE_SHARE = 8
"""One cell in so many is there for dropped tokens, until those alive are moved together. That takes
their KV once more in main memory, for as long as it lasts."""
