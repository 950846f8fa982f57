"""The audit: seven questions about any model and any task, each with a control that can fail.

`verdicts` has the questions, the rules and the sentences. It is the only place that says a verdict.
`measures` computes the numbers, `tasks` has the prompts of an operation, `auditing` asks one
question after the other, `result` is what it returns, and `page` draws it.
"""

from arith_lens.auditing.auditing import audit as audit
from arith_lens.auditing.result import Audit as Audit
from arith_lens.auditing.tasks import fitting_metric as fitting_metric
from arith_lens.auditing.tasks import four_operations as four_operations
from arith_lens.auditing.tasks import operation_pairs as operation_pairs
from arith_lens.auditing.verdicts import PARTS as PARTS
from arith_lens.auditing.verdicts import QUESTIONS as QUESTIONS
from arith_lens.auditing.verdicts import READ as READ
from arith_lens.auditing.verdicts import Measure as Measure
from arith_lens.auditing.verdicts import Verdict as Verdict
