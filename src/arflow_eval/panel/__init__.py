"""Panels: frozen frame lists, and the data they point into."""
