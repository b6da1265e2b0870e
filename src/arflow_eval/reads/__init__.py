"""Measures of reads and their guards, over finished stores."""
