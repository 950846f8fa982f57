"""Attribution patching (Nanda, 2023): the first-order approximation at the reference run."""

from arith_lens.attribution.graph import Batch, Scores


def atp(batch: Batch) -> Scores:
    """Change of the output, times the gradient at the reference run."""
    counterfactual, reference = batch.counterfactual(), batch.reference()
    gradient = batch.gradient(reference, reference, counterfactual)
    return batch.scores(gradient, reference, counterfactual)
