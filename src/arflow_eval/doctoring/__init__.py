"""What `doctor` looks into: so far the file system below an output folder.

`filesystem` has the checks, each with what it is needed for; `peer` is the second process that
they take.
"""
