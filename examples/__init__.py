"""Kinds to read and to start from."""
