"""Files of tensors, none of which runs code when it is read.

checkpoints.py  `save` and `load`: the safetensors format, with trees of tensors in it
errors.py       the error of files that cannot be read
torch_files.py  reads what `torch.save` wrote
"""

from .checkpoints import load, read_metadata, save
from .errors import CheckpointError

__all__ = ["CheckpointError", "load", "read_metadata", "save"]
