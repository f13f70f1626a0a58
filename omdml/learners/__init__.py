"""The learners. Each is a class with hyperparameters and one main method, ``learn_many``.

Their modules import engines, which hold the state, only in the functions that begin to learn. Engines bring numba and
scipy, which take half a second to import. A process that only checks hyperparameters, as every command does with its
configuration, does not wait for that.
"""

from omdml.learners.cpmtml import CPmtML
from omdml.learners.dca import DCA
from omdml.learners.dca_parts import merge, start_from_pairs
from omdml.learners.diagonal import Diagonal
from omdml.learners.lomdml import LOMDML
from omdml.learners.mtlmca import MtLMCA
from omdml.learners.oasis import OASIS
from omdml.learners.omdml import OMDML
from omdml.learners.qwise import Qwise
from omdml.learners.setnet import SetNet
from omdml.learners.shared.base import LEARNERS, Learner, Outcome
from omdml.learners.signed import Signed
from omdml.learners.stml import StML, UtML

__all__ = [
    "DCA",
    "LEARNERS",
    "LOMDML",
    "OASIS",
    "OMDML",
    "CPmtML",
    "Diagonal",
    "Learner",
    "MtLMCA",
    "Outcome",
    "Qwise",
    "SetNet",
    "Signed",
    "StML",
    "UtML",
    "merge",
    "start_from_pairs",
]
