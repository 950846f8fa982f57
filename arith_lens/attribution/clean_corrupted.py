"""The mean of the gradients at the reference run and at the counterfactual run."""

from arith_lens.attribution.graph import Batch, Scores, mean_of


def clean_corrupted(batch: Batch) -> Scores:
    """Change of the output, times the mean of the gradients of both runs."""
    reference, counterfactual = batch.reference(), batch.forward(batch.pairs.counterfactual)
    gradients = [
        batch.gradient(run, reference, counterfactual) for run in (reference, counterfactual)
    ]
    return batch.scores(mean_of(gradients), reference, counterfactual)
