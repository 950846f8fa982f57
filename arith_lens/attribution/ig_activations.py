"""Integrated gradients over each layer's own outputs (Hanna et al., 2024).

Per layer the heads move together, and then the MLP, from their outputs in the counterfactual run
to those in the reference run. All else is as in the reference run on these paths.
"""

from arith_lens.attribution.graph import Batch, Scores, mean_of


def ig_activations(batch: Batch) -> Scores:
    """Change of the output, times the mean gradient between both runs' outputs of this layer.

    The points are the shares 1/m to m/m of the way from the counterfactual's output to the
    reference's, so the reference run is one of them. It is computed once for all layers. The
    others are computed from their layer on.
    """
    counterfactual, reference = batch.counterfactual(), batch.reference()
    first = batch.gradient(reference, reference, counterfactual)
    mean = {}
    for name, end in reference.outputs.items():
        start, gradients = counterfactual.outputs[name], [{name: first[name]}]
        for step in range(1, batch.steps):
            run = batch.moved(reference, name, start + (step / batch.steps) * (end - start))
            gradients.append(batch.gradient(run, reference, counterfactual))
        mean |= mean_of(gradients)
    return batch.scores(mean, reference, counterfactual)
