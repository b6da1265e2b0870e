"""python -m arflow_eval.convert KIND PATH ...: stores into other forms, and back.

convert npz IN.npz OUT                             a published file into a store
convert npz RUN [RUN ...] OUT.npz                  stores into a published file
convert parquet RUN OUT.parquet                    a store into a table, a row a frame and draw
convert parquet RUN [RUN ...] OUT                  stores into a folder of such tables
convert merge RUN RUN [RUN ...] OUT                shards from several machines into one store
convert subset RUN OUT --frames PLAN.json          a store cut to the frames of a smaller panel
convert panel ROOT OUT.json                        a frozen panel of LeRobot datasets

convert KIND --help has the flags of a kind.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Final

from arflow_eval import jobs, refusal

KINDS: Final = ("npz", "parquet", "merge", "subset", "panel")
FORMS: Final = "convert npz IN.npz OUT, or convert parquet|merge|subset|panel ... OUT"


def main(argv: Sequence[str] | None = None) -> int:
    """Run `convert` with the given words, the command line's by default; returns the exit code."""
    kind, *rest = [*(sys.argv[1:] if argv is None else argv)] or [""]
    if kind in KINDS:
        return int(importlib.import_module(f"arflow_eval.exchange.{kind}").main(rest))
    if kind in ("-h", "--help"):
        sys.stdout.write(__doc__)
        return 0
    close = refusal.nearest(kind, KINDS)
    return jobs.report(
        refusal.usage(
            f"convert {kind}".strip(),
            expected=FORMS,
            remedy=f"did you mean {close}?" if close else "see arflow-eval convert --help",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
