"""Whether a native call shall end before its work is done: a signal's handler has raised, or a deadline has passed.

Generated code calls `hml_poll` about once per `POLL_NS` of estimated work. Most polls compare the clock with the time
of the next look, which is Python's: there the interpreter runs handlers of signals, as only it can, and only in the
main thread (`runtime.host_callback`). A call shorter than `LOOK_NS` never looks, a program shorter than `POLL_NS`
never polls.
"""

from __future__ import annotations

from hybridml_compiler.once import once
from hybridml_compiler.runtime import host_callback
from hybridml_compiler.targets.cpu.runtime import jit, scratch
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.runtime.spans import NOW, clock
from hybridml_compiler.targets.cpu.runtime.thread_block import BEGIN, LOOK, POLL, SCRATCH


def symbols() -> dict[str, int]:
    """Addresses of `void hml_poll_begin()`, which a step that polls calls first, and `i64 hml_poll()`: whether to stop.

    Once it says so, it goes on to until the thread's next step begins. A worker of the pool asks for its job.
    """
    return {name: _library().address(name) for name in (BEGIN, POLL)}


def source() -> jit.Source:
    """The module, for those who compile others at the same time: once per machine."""
    time = _time()

    def emit() -> str:
        from hybridml_compiler.targets.cpu.runtime import polling_ir

        return polling_ir.text(has_clock=bool(time))

    emitters = ("targets.cpu.runtime.polling*", "targets.cpu.runtime.thread_block", "targets.cpu.runtime.spans")
    return jit.emitted_source(f"polling {bool(time)}", emit, *emitters, opt=jit.RARELY_CALLED)


def _time() -> dict[str, int]:
    return {NOW: address} if (address := (clock() or {}).get(NOW)) else {}


@once
def _library() -> loader.Library:
    imports = {**_time(), LOOK: host_callback.look(), SCRATCH: scratch.symbols()[SCRATCH]}
    return loader.load([jit.compile_source(source())], imports, (BEGIN, POLL))
