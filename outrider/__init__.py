"""Lossless speculative decoding across machines."""
