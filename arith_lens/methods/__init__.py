"""How any method computes numbers per pair: in shards that a run stores, so that it can be resumed.

`Method` and `run_method` are for a method of the user's: a function of one batch of pairs. The
methods of this package state theirs as a `Computation`: an engine for one batch of pairs, what
decides its numbers, and how the result is made of them.
"""

from arith_lens.methods.certificate import TINY as TINY
from arith_lens.methods.certificate import Certificate as Certificate
from arith_lens.methods.certificate import CertificateError as CertificateError
from arith_lens.methods.computation import Computation as Computation
from arith_lens.methods.computation import every_pair as every_pair
from arith_lens.methods.method import Method as Method
from arith_lens.methods.method import MethodEngine as MethodEngine
from arith_lens.methods.method import method_components as method_components
from arith_lens.methods.method import run_method as run_method
from arith_lens.methods.options import MetricTokenOptions as MetricTokenOptions
from arith_lens.methods.options import MetricTokens as MetricTokens
from arith_lens.methods.options import Storage as Storage
from arith_lens.methods.options import StorageOptions as StorageOptions
from arith_lens.methods.senders import Senders as Senders
from arith_lens.methods.senders import as_senders as as_senders
from arith_lens.methods.shards import HOOKS_SHARD as HOOKS_SHARD
from arith_lens.methods.shards import SHARD as SHARD
from arith_lens.methods.shards import Engine as Engine
from arith_lens.methods.shards import Notes as Notes
from arith_lens.methods.shards import ShardLoop as ShardLoop
from arith_lens.methods.shards import joined_notes as joined_notes
from arith_lens.methods.shards import shard_size as shard_size
