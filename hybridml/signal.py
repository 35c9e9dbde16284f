"""Signal processing by torch.signal's names: `hm.signal.windows`. See also `hm.stft` and `hm.fft`."""

from __future__ import annotations

from .arrays.shaping import windows

__all__ = ["windows"]
