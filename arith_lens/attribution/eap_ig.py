"""Integrated gradients over the inputs (Hanna et al., 2024), for components in place of edges."""

from arith_lens.attribution.graph import EMBEDDINGS, Batch, Scores, mean_of


def eap_ig(batch: Batch) -> Scores:
    """Change of the output, times the mean gradient between both prompts' embeddings.

    The points are the shares 1/m to m/m of the way from the counterfactual's embeddings to the
    reference's, so the reference run is one of them.
    """
    counterfactual, reference = batch.counterfactual(), batch.reference()
    gradients = [batch.gradient(reference, reference, counterfactual)]
    start, end = (run.streams[EMBEDDINGS] for run in (counterfactual, reference))
    for step in range(1, batch.steps):
        between = start + (step / batch.steps) * (end - start)
        run = batch.forward(batch.pairs.reference, embeddings=between)
        gradients.append(batch.gradient(run, reference, counterfactual))
    return batch.scores(mean_of(gradients), reference, counterfactual)
