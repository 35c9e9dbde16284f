"""The native half of scratch.py: a thread's scratch memory, by functions of the system that keep a value per thread."""

from __future__ import annotations

from ..llvm.native import NativeBuilder, native
from ..llvm.native import text as module_text
from ..spec import host_spec
from .thread_block import THREAD

LINE = 64


def text(get: str, put: str, zero_is_success: bool, nbytes: int) -> str:
    """The module, for functions of these names that read and set the value, and for so much memory."""

    @native("ptr")
    def hml_scratch(c: NativeBuilder) -> None:
        """The memory of this thread, null where it has none."""
        c.ret(c.extern("ptr", get, c.symbol("hml_scratch_key").load()))

    @native("i64")
    def hml_scratch_ready(c: NativeBuilder) -> None:
        """1 if this thread has its memory, 0 if there is none left to be had."""
        c.ret_if(hml_scratch(c) != 0, 1)
        made = c.extern("ptr", "malloc", nbytes + 2 * LINE)
        c.ret_if(made == 0, 0)
        thread = made.struct(THREAD)
        for name in THREAD.names[1:]:
            thread[name] = 0
        made.store(c.word(made + (2 * LINE - 1)) & -LINE)  # its free part, behind these words
        status = c.extern("i32", put, c.symbol("hml_scratch_key").load(), made)
        c.ret_if((status == 0) if zero_is_success else (status != 0), 1)
        c.extern("void", "free", made)
        c.ret(0)

    return module_text("scratch", host_spec(), hml_scratch, hml_scratch_ready)
