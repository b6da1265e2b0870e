"""python -m arflow_eval.panel check: the command `panel`, whose name is this room's."""

import sys

from arflow_eval.panel_check import main

sys.exit(main())
