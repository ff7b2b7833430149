"""Constituency trees: read from brackets, cleaned, and written as symbols for a model."""
