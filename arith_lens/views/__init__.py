"""Interactive views: arrays and tokens in, HTML that opens offline out. Tokens are data.

circuitsvis' components for a few heads, one page or notebook that carries its bundle once; and a
map of all heads that opens one pattern at a time.
"""

from arith_lens.views.circuits import MOST_HEADS as MOST_HEADS
from arith_lens.views.circuits import View as View
from arith_lens.views.circuits import attention_heads as attention_heads
from arith_lens.views.head_map import HeadMap as HeadMap
from arith_lens.views.head_map import head_map as head_map
from arith_lens.views.head_map import save_head_map as save_head_map
from arith_lens.views.page import Viewed as Viewed
from arith_lens.views.page import bundle as bundle
from arith_lens.views.page import page as page
from arith_lens.views.page import save_page as save_page
from arith_lens.views.safety import safe_token as safe_token
from arith_lens.views.safety import script_json as script_json
