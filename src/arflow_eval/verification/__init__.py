"""Whether what lies on disk is what was written, one kind of artefact a module.

`kinds` knows each kind by what lies at a path, `stores` verifies a store down to the frame and the
variable, `finding` is what a verification says.
"""
