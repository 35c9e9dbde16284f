"""Neural network modules with PyTorch's names, arguments, defaults, initial values and state-dict keys."""

from types import ModuleType as _Module

from ..core.spellings import advise as _advise
from . import functional as functional
from . import init as init
from . import quantized as quantized
from . import utils as utils
from .activations import *
from .attention import *
from .containers import *
from .convolution import *
from .dropout import *
from .function_module import own_init as _own_init
from .lazy.layers import *
from .lazy.uninitialized import *
from .linear import *
from .losses import *
from .module import *
from .normalization import *
from .padding import *
from .parameter import *
from .pooling import *
from .recurrent import *
from .shapes import *
from .transformer import *

__all__ = sorted(
    [
        "functional",
        "init",
        "quantized",
        "utils",
        *(name for name, value in globals().items() if name[0] != "_" and type(value) is not _Module),
    ],
    key=lambda name: (not name.isupper(), name[0].islower(), name),
)

for _public in list(globals().values()):
    if isinstance(_public, type):
        _own_init(_public)

_advise(globals())
