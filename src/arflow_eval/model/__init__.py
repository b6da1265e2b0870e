"""Policies: one file a family, each with a `load` that its configuration names."""
