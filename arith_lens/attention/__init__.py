"""Where heads look: attention from END, summed by role, and one prompt's patterns."""

from arith_lens.attention.from_end import ROLES as ROLES
from arith_lens.attention.from_end import attention_by_role as attention_by_role
from arith_lens.attention.from_end import attention_to as attention_to
from arith_lens.attention.kinds import KINDS as KINDS
from arith_lens.attention.kinds import kinds_of as kinds_of
from arith_lens.attention.kinds import most_looked_at as most_looked_at
from arith_lens.attention.prompts import Patterns as Patterns
from arith_lens.attention.prompts import attention_view as attention_view
from arith_lens.attention.prompts import patterns_of as patterns_of
