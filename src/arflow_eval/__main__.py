"""`python -m arflow_eval COMMAND` is the console script `arflow-eval COMMAND`."""

import sys

from arflow_eval.cli import main

sys.exit(main())
