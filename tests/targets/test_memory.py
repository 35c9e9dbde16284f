"""Compiling without memory: an error, where LLVM would end the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hybridml_compiler.targets.cpu.runtime import memory

PROGRAM = """
import resource
import hybridml as hm
x = hm.ones((64, 64))
f = hm.trace(lambda x: hm.functional.softmax(x @ x, -1) + hm.sin(x))
hm.trace(lambda x: hm.tanh(x) + 1)(x)  # LLVM is there
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
for room in (2, 6, 10, 16, 24):
    resource.setrlimit(resource.RLIMIT_AS, (used + (room << 20), resource.RLIM_INFINITY))
    try:
        f(x)
    except MemoryError:
        print("refused")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(bool(hm.allclose(f(x), f.__wrapped__(x))))
"""


def test_what_cannot_be_had_is_refused() -> None:
    memory.require()
    with pytest.raises(MemoryError, match="of address space"):
        memory.require(1 << 40)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space")
def test_a_program_without_memory_is_an_error_and_works_later() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "HYBRIDML_CACHE_DIR": "off"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["refused"] * 5 + ["True"]
