"""Codecs: between action chunks or states in raw units and the numbers a model speaks."""
