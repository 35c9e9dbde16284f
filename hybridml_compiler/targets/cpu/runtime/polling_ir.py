"""The native half of polling.py: words of the thread that say when to look, and that it has been told to stop."""

from __future__ import annotations

from typing import Any

from ..llvm.native import NativeBuilder, i32, native
from ..llvm.native import text as module_text
from ..spec import host_spec
from .spans import CLOCK, NOW
from .thread_block import LOOK, LOOK_NS, SCRATCH, THREAD

NEVER = (1 << 63) - 1


def text(has_clock: bool) -> str:
    """The module; without a clock nothing ever looks."""

    def nanoseconds(c: NativeBuilder) -> Any:
        if not has_clock:
            return c.variable(0).value
        time = c.local("i64", 2)
        c.extern("i32", NOW, i32(CLOCK), time)
        return time.load() * 1_000_000_000 + time.item(1)

    @native("void")
    def hml_poll_begin(c: NativeBuilder) -> None:
        own = c.extern("ptr", SCRATCH)
        with c.if_then(own != 0, likely=True):
            thread = own.struct(THREAD)
            thread["due"], thread["stopped"] = nanoseconds(c) + LOOK_NS, 0

    @native("i64")
    def hml_poll(c: NativeBuilder) -> None:
        """1 to stop. A look says 0 for that, 1 to be asked again, 2 where it has nothing to look for."""
        own = c.extern("ptr", SCRATCH)
        c.ret_if(own == 0, 0)
        thread = own.struct(THREAD)
        with c.if_then(thread["job"] != 0):
            c.ret(thread["job"].load(order="monotonic"))
        c.ret_if(thread["stopped"] != 0, 1)
        c.ret_if(nanoseconds(c) < thread["due"], 0)
        found = c.local("i64")
        found.store(0)
        c.extern("void", LOOK, found)
        thread["due"] = c.select(found.load() == 2, NEVER, nanoseconds(c) + LOOK_NS)
        # Anew, as a handler that ran in the look may have called another program, which was stopped.
        thread["stopped"] = 0
        with c.if_then(found.load() == 0):
            thread["stopped"] = 1
        c.ret(thread["stopped"])

    return module_text("polling", host_spec(), hml_poll_begin, hml_poll)
