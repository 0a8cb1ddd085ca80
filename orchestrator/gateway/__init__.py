"""The OpenAI-compatible HTTP endpoint; the only modules that import FastAPI.

Each request becomes one generation for each of its choices, in the same engines that answer gRPC.
"""
