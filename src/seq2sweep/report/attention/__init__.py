"""Attention maps, as a page that needs nothing else and as figures for a paper."""
