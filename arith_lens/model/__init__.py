"""Load a model, run it with hooks, record its activations.

The model is a TransformerBridge in evaluation mode, without compatibility mode. Weights, logits and
activations are the Hugging Face model's own, bit for bit, and no norm is folded, because the
paper's metric needs raw logits. TransformerLens 4.0 removed HookedTransformer; hook names, shapes
and values are the same (see `docs/api.md`).
"""

from arith_lens.model.checkpoints import files_state as files_state
from arith_lens.model.checkpoints import find_checkpoint as find_checkpoint
from arith_lens.model.checkpoints import load_tokenizer as load_tokenizer
from arith_lens.model.checkpoints import read_config as read_config
from arith_lens.model.end_runs import EndAttention as EndAttention
from arith_lens.model.end_runs import EndRuns as EndRuns
from arith_lens.model.end_runs import UnsupportedEndRuns as UnsupportedEndRuns
from arith_lens.model.end_runs import attention_weights as attention_weights
from arith_lens.model.end_runs import capped as capped
from arith_lens.model.environment import code_hash as code_hash
from arith_lens.model.environment import unknown_influences as unknown_influences
from arith_lens.model.families import ACTIVATION_NAMES as ACTIVATION_NAMES
from arith_lens.model.families import ATTENTION_NAMES as ATTENTION_NAMES
from arith_lens.model.families import FAMILIES as FAMILIES
from arith_lens.model.families import family_of as family_of
from arith_lens.model.forwards import LogitScale as LogitScale
from arith_lens.model.forwards import PrefixCache as PrefixCache
from arith_lens.model.forwards import accepted_options as accepted_options
from arith_lens.model.forwards import continues_prompts as continues_prompts
from arith_lens.model.forwards import forwards_replaced as forwards_replaced
from arith_lens.model.forwards import keys_and_values as keys_and_values
from arith_lens.model.forwards import n_common as n_common
from arith_lens.model.forwards import record as record
from arith_lens.model.forwards import require_finite as require_finite
from arith_lens.model.forwards import run_layers as run_layers
from arith_lens.model.forwards import starting_at as starting_at
from arith_lens.model.hooked import HookedLike as HookedLike
from arith_lens.model.hooked import HookedModel as HookedModel
from arith_lens.model.hooked import Tokens as Tokens
from arith_lens.model.loading import empty_model as empty_model
from arith_lens.model.loading import load_model as load_model
from arith_lens.model.loading import planned_model as planned_model
from arith_lens.model.neurons import check_neurons as check_neurons
from arith_lens.model.neurons import every_neuron as every_neuron
from arith_lens.model.neurons import n_neurons as n_neurons
from arith_lens.model.own_modules import LayerArguments as LayerArguments
from arith_lens.model.own_modules import PlainLayer as PlainLayer
from arith_lens.model.own_modules import columns_alone as columns_alone
from arith_lens.model.own_modules import end_alone as end_alone
from arith_lens.model.own_modules import end_logits as end_logits
from arith_lens.model.own_modules import in_float32 as in_float32
from arith_lens.model.own_modules import layer_arguments as layer_arguments
from arith_lens.model.own_modules import mlp_exit as mlp_exit
from arith_lens.model.own_modules import own_module as own_module
from arith_lens.model.own_modules import plain_layers as plain_layers
from arith_lens.model.own_modules import with_parts as with_parts
from arith_lens.model.own_modules import without_bridge as without_bridge
from arith_lens.model.own_modules import without_patterns as without_patterns
from arith_lens.model.pretrained import get_pretrained as get_pretrained
from arith_lens.model.resumed import ResumedRuns as ResumedRuns
from arith_lens.model.resumed import keeps_tokens as keeps_tokens
from arith_lens.model.settings import numeric_settings as numeric_settings
from arith_lens.model.state import active_hooks as active_hooks
from arith_lens.model.state import buffers_hash as buffers_hash
from arith_lens.model.state import compute_device as compute_device
from arith_lens.model.state import configuration_hash as configuration_hash
from arith_lens.model.state import default_device as default_device
from arith_lens.model.state import is_offloaded as is_offloaded
from arith_lens.model.state import lacks_weights as lacks_weights
from arith_lens.model.state import layers_with_weights as layers_with_weights
from arith_lens.model.state import require_evaluation_mode as require_evaluation_mode
from arith_lens.model.state import state_digest as state_digest
from arith_lens.model.state import tokenizer_hash as tokenizer_hash
from arith_lens.model.state import weights_hash as weights_hash
from arith_lens.model.state import weights_loaded as weights_loaded
from arith_lens.model.texts import NO_FRAME as NO_FRAME
from arith_lens.model.texts import PAD as PAD
from arith_lens.model.texts import Frame as Frame
from arith_lens.model.texts import chat_frame as chat_frame
from arith_lens.model.texts import first_token as first_token
from arith_lens.model.texts import frame_around as frame_around
from arith_lens.model.texts import in_chat as in_chat
from arith_lens.model.texts import left_pad as left_pad
from arith_lens.model.texts import rows_with_offsets as rows_with_offsets
from arith_lens.model.texts import token_rows as token_rows
from arith_lens.model.writes import NormScale as NormScale
from arith_lens.model.writes import PartWrites as PartWrites
from arith_lens.model.writes import check_writes as check_writes
from arith_lens.named_models import PRETRAINED as PRETRAINED
