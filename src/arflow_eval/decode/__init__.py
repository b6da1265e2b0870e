"""Decodes: from a policy and a frame to its draws."""
