"""LeRobot datasets of the versions 2.0, 2.1 and 3.0, read with pyarrow and PyAV alone.

Everything in them is untrusted: JSON is checked, paths stay inside the root, numbers have bounds.
"""
