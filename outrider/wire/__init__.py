"""Everything between dataclasses and gRPC: conversion, errors, channels, servers."""
