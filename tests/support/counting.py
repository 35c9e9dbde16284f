"""A kernel whose loops are as long as they are told: one needs a file that its source is in."""

from __future__ import annotations

from typing import Any

import hybridml as hm


@hm.kernel
def counting(x: Any, n: Any) -> Any:
    while n > 0:
        m = n
        while m > 0:
            x = x * 0.5 + 1
            m = m - 1
        n = n - 1
    return x
