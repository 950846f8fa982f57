"""Run one command for maintainers: `python -m laboratory <command> [options]`."""

import sys

from experiments.catalogue import Command, experiments
from experiments.command import named_command, start

SENTENCES = {
    "audits:audits": "Audit a model on tasks, and store what the audits find.",
    "audits:audit_table": "Print the rows of all finished audits, and write them to a file.",
    "carries:carries": "Is the carry of two-digit sums one direction, at which layer?",
    "exchanges:exchanges": "What does an answer become when heads are those of another sum?",
    "calibration:calibration": "Audit every model whose truth is known: are its verdicts right?",
    "training:measure_reference": "What can a reference model do? Its model card, measured again.",
    "speed.path_patching:speed": "How fast is path patching, how do cost and memory grow?",
    "speed.fine_tuning:speed_fine_tuning": "What does a training step cost?",
    "speed.scale:speed_scale": "Does path patching hold at seven billion parameters?",
    "training:train_reference": "Train a reference model on the closed world, from scratch.",
}
"""The functions that are commands of their names, and what they do."""
COMMANDS = {
    reference.partition(":")[2]: Command(
        "laboratory", reference.partition(":")[2], f"laboratory.{reference}", words=sentence
    )
    for reference, sentence in SENTENCES.items()
}


def main() -> None:
    """Start the command that the first argument names."""
    words = sys.argv[1:]
    usage = "python -m laboratory <command> [options]; each has --help"
    if command := named_command(words, COMMANDS, usage, experiments):
        start(command, words[1:])


if __name__ == "__main__":
    main()
