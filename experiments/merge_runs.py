"""Do these run folders hold parts of one computation? Bring them together.

ARITH_LENS_PART=1/2 python -m experiments which_heads     on one machine, 2/2 on another
python -m experiments merge_runs results/which_heads/KEY  other/results/which_heads/KEY
python -m experiments which_heads                         reads all shards, computes none
"""

from pathlib import Path

import tyro

from arith_lens.runs import merge_runs
from experiments.command import exit_on_user_error


def main(into: tyro.conf.Positional[Path], others: tyro.conf.Positional[tuple[Path, ...]]) -> None:
    """Check, copy and print.

    Args:
        into: the run folder that takes the others' results and shards.
        others: run folders of the same configuration, model and version.
    """
    with exit_on_user_error():
        run = merge_runs(into, *others)
    shards = [f"{count} shards of {name}" for name, count in run.unfinished().items()]
    print(f"{run.path}: {', '.join([*run.names, *shards]) or 'nothing'}")
    if shards:
        print("Run the same experiment, without a part, to finish them.")


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments merge_runs", description=__doc__)
