"""The functions of `hybridml.functional` under PyTorch's name: `import hybridml.nn.functional as F`."""

from ...core.spellings import advise as _advise
from ...functional import __all__ as __all__
from ...functional.activations import *
from ...functional.adaptive import *
from ...functional.attention import *
from ...functional.basics import *
from ...functional.convolution import *
from ...functional.distances import *
from ...functional.dropouts import *
from ...functional.fractional import *
from ...functional.gates import *
from ...functional.likelihoods import *
from ...functional.losses import *
from ...functional.margins import *
from ...functional.multi_head import *
from ...functional.normalization import *
from ...functional.padding import *
from ...functional.pooling import *
from ...functional.resampling import *
from ...functional.sampling import *

_advise(globals())
