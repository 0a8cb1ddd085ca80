"""Logs; knows nothing about tokens."""
