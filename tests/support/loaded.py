"""What the fork server imports last: it loads the kernels that most processes need, before it forks any.

Each ``omdml worker`` or ``omdml node`` would spend about 0.4 s of processor time on that.
"""

from __future__ import annotations

import gc

from omdml.workers.configuration.warm_up import warm_up, warm_up_searches

warm_up([("lomdml", "float32")])
warm_up_searches()
# A forked process need not look through all these modules for garbage, nor copy their memory to do so.
gc.collect()
gc.freeze()
