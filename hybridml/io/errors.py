"""The error of files that cannot be read."""

from __future__ import annotations

from hybridml_compiler.errors import HybridmlError


class CheckpointError(HybridmlError, OSError):
    """A file that cannot be read as what it should be; the message names it.

    >>> import hybridml as hm
    >>> try:
    ...     hm.load(hm.__file__)
    ... except hm.io.CheckpointError as error:
    ...     print(isinstance(error, OSError))
    True
    """
