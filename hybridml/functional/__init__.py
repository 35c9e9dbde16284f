"""Composites in plain code over the operation table, with PyTorch's names, argument order and defaults.

None of these is an operation of its own: they trace, differentiate (to any order) and fuse because what they call does.
"""

from types import ModuleType as _Module

from ..core.spellings import accept as _accept
from ..core.spellings import advise as _advise
from .activations import *
from .adaptive import *
from .attention import *
from .basics import *
from .convolution import *
from .distances import *
from .dropouts import *
from .fractional import *
from .gates import *
from .likelihoods import *
from .losses import *
from .margins import *
from .multi_head import *
from .normalization import *
from .padding import *
from .pooling import *
from .resampling import *
from .sampling import *

__all__ = sorted(
    [name for name, value in globals().items() if name[0] != "_" and type(value) is not _Module],
    key=lambda name: (not name.isupper(), name[0].islower(), name),
)
_accept(globals(), __all__)

_advise(globals())
