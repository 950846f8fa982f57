"""Interventions as values: each function returns a list of named hooks; lists compose with `+`.

Hooks at one hook point run in the order of the list, each on the result of the previous one. So if
two change the same head, the later one wins. A hook never writes into its input, has no state, and
knows no model: the same list works in `run_with_hooks`, `hooks()` and `generate`, on a
`HookedModel` and on a bare TransformerBridge.

    freeze(model, reference, mlps=False) + patch_heads([sender], counterfactual, positions=-1)

freezes every head, then lets one sender see the other prompt at END: the paper's path patching.

Positions are those of the prompt (`activations.Positions`). In a generation with a cache, each step
after the first has one new token. Hooks without positions (zero, scale, a source of one position
such as a mean) act on every step. Hooks with positions act on the prompt, and
`HookedModel.generate` needs `hook_steps="prompt"` for them.
"""

from arith_lens.hooks.interventions import Edit as Edit
from arith_lens.hooks.interventions import ablate_heads as ablate_heads
from arith_lens.hooks.interventions import ablate_mlps as ablate_mlps
from arith_lens.hooks.interventions import capture as capture
from arith_lens.hooks.interventions import describe_hooks as describe_hooks
from arith_lens.hooks.interventions import freeze as freeze
from arith_lens.hooks.interventions import has_identity as has_identity
from arith_lens.hooks.interventions import hooks_digest as hooks_digest
from arith_lens.hooks.interventions import patch_heads as patch_heads
from arith_lens.hooks.interventions import patch_mlps as patch_mlps
from arith_lens.hooks.interventions import replacement as replacement
from arith_lens.hooks.interventions import scale_heads as scale_heads
from arith_lens.hooks.interventions import scale_mlps as scale_mlps
from arith_lens.hooks.neurons import ablate_neurons as ablate_neurons
from arith_lens.hooks.neurons import patch_neurons as patch_neurons
from arith_lens.hooks.neurons import scale_neurons as scale_neurons
