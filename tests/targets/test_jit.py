"""Compiling and linking: errors are errors, objects link to each other, and threads give the same bytes."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import hybridml as hm
from hybridml_compiler.errors import CompileError
from hybridml_compiler.runtime import uninterrupted as uninterrupted_module
from hybridml_compiler.runtime.uninterrupted import stepping, uninterrupted
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import image, loader
from hybridml_compiler.targets.cpu.spec import host_spec


def adder(k: int) -> str:
    return f"define i64 @add{k}(i64 %x) {{ %y = add i64 %x, {k}\n ret i64 %y }}"


def as_function(address: int) -> ctypes._CFunctionType:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)


@pytest.fixture(params=["ours", "llvm"])
def linker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both linkers; ours is LLVM's where it does not know the machine."""
    if request.param == "llvm":
        monkeypatch.setattr(image, "SUPPORTED", False)
    return str(request.param)


def test_host_is_known() -> None:
    host = host_spec()
    assert host.name and host.triple and host.cores and host.vector_bits in (128, 256, 512)
    assert host is host_spec()


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("opt", [0, 1, 3])
def test_compile_and_call(passes: bool, opt: int) -> None:
    data = jit.compile_ir(adder(5), passes=passes, opt=opt)
    library = loader.load([data], exports=["add5"])
    assert as_function(library.address("add5"))(37) == 42


def test_others_get_their_llvm_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that we leave out is left out once for all threads, and is there again, also after an error."""
    usual = sys.getswitchinterval()  # of the interpreter: the turns of threads are shorter meanwhile
    llvm, said = jit.initialized(), []
    monkeypatch.setattr(jit, "_TRIED", llvm.llvm_version_info[0])
    monkeypatch.setattr(llvm, "set_option", lambda _, option: said.append(option))
    with jit._leaner():
        threads = [threading.Thread(target=jit.compile_ir, args=(adder(k),)) for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with pytest.raises(CompileError):
        jit.compile_ir("define i64 @broken(")
    with pytest.raises(ZeroDivisionError), jit._leaner():
        raise ZeroDivisionError
    assert said == ["-disable-lsr=true", "-disable-lsr=false"] * 3
    assert sys.getswitchinterval() == usual


def test_objects_link_to_each_other_and_to_imports(linker: str) -> None:
    callback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x * 10)
    text = """
    declare i64 @add1(i64)
    declare i64 @far(i64)
    @where = external global i8
    define i64 @both(i64 %x) { %a = call i64 @add1(i64 %x)
     %b = call i64 @far(i64 %a)
     %p = ptrtoint ptr @where to i64
     %c = add i64 %b, %p
     ret i64 %c }"""
    objects = [jit.compile_cached(adder(1)), jit.compile_cached(text)]
    imports = {"far": loader.address_of(callback), "where": 0x123456789A0}
    library = loader.load(objects, imports, ["both"], keep=[callback])
    assert as_function(library.address("both"))(4) == 50 + 0x123456789A0


def test_memory_functions_are_there_without_asking(linker: str) -> None:
    text = """
    declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
    define i64 @zero(ptr %p, i64 %n) { call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)
     ret i64 0 }"""
    library = loader.load([jit.compile_cached(text)], exports=["zero"])
    memory = ctypes.create_string_buffer(b"x" * 100)
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(library.address("zero"))(
        ctypes.addressof(memory), 100
    )
    assert memory.raw[:100] == bytes(100)


def test_bad_text_is_an_error_with_llvms_words() -> None:
    with pytest.raises(CompileError, match=r"'%x' defined with type 'i64' but expected 'i32'"):
        jit.compile_ir("define i32 @f(i64 %x) { ret i32 %x }")


def test_missing_symbol_is_an_error(capfd: pytest.CaptureFixture[str], linker: str) -> None:
    data = jit.compile_cached("declare void @nowhere()\ndefine void @f() { call void @nowhere()\n ret void }")
    with pytest.raises(CompileError, match="could not link") as caught:
        loader.load([data], exports=["f"])
    assert "nowhere" in str(caught.value) + capfd.readouterr().err  # LLVM itself writes the name to stderr


@pytest.mark.parametrize("damage", [lambda d: d[: len(d) // 2], lambda d: b"junk" * 50, lambda d: b""])
def test_damaged_object_is_an_error(damage: object, linker: str) -> None:
    assert callable(damage)
    with pytest.raises(CompileError, match=r"object|section"):
        loader.load([damage(jit.compile_cached(adder(1)))], exports=["add1"])


def test_a_symbol_defined_twice_is_an_error(linker: str) -> None:
    data = jit.compile_cached(adder(1))
    with pytest.raises(CompileError, match=r"could not link"):
        loader.load([data, jit.compile_cached(adder(1).replace(", 1\n", ", 2\n"))], exports=["add1"])


def test_unknown_export_is_an_error() -> None:
    library = loader.load([jit.compile_cached(adder(1))], exports=["add1"])
    with pytest.raises(CompileError, match="no symbol 'add2' in this library; it exports add1"):
        library.address("add2")


def test_same_names_in_different_libraries(linker: str) -> None:
    one = loader.load([jit.compile_cached(adder(1))], exports=["add1"])
    other = loader.load([jit.compile_cached(adder(1).replace(", 1\n", ", 100\n"))], exports=["add1"])
    assert as_function(one.address("add1"))(1) == 2
    assert as_function(other.address("add1"))(1) == 101


def compile_many(texts: list[str]) -> list[bytes]:
    return jit.compile_sources([jit.Source(text, partial(str, text)) for text in texts])


def test_compile_many_in_threads_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_cores", lambda: 4)
    texts = [adder(k) for k in range(100, 120)]
    texts.append(texts[0])
    many = compile_many(texts)
    assert many == [jit.compile_ir(text) for text in texts]
    assert compile_many(texts) == many


def test_compile_many_without_the_lock_trick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_let_threads_skip_the_lock", lambda: False)
    assert compile_many([adder(200), adder(201)]) == [jit.compile_ir(adder(200)), jit.compile_ir(adder(201))]


def test_compile_many_reports_a_bad_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_cores", lambda: 2)
    with pytest.raises(CompileError, match="parsing error"):
        compile_many([adder(300), "not IR"])


def test_threads_may_compile_at_once() -> None:
    results: dict[int, int] = {}

    def work(k: int) -> None:
        library = loader.load([jit.compile_ir(adder(k))], exports=[f"add{k}"])
        results[k] = as_function(library.address(f"add{k}"))(1)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {k: k + 1 for k in range(8)}


def test_errors_in_cycles_are_collected_in_any_order() -> None:
    """The collector ended a context of LLVM before its modules, which a traceback kept: a crash."""
    program = """
import gc
from hybridml_compiler.errors import CompileError
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import host_spec
gc.disable()
for k in range(20):
    try:
        jit._compiled([f"define i64 @f{k}() {{ ret i64 {k} }}"] * 2, False, 1, host_spec())
    except CompileError as error:
        error.kept = error
gc.collect()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("small_heap")
def test_the_main_thread_never_takes_the_lock_of_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C arrives there, and llvmlite takes its lock in Python code: one at the wrong line would keep it."""
    from llvmlite.binding import ffi

    gc.collect()  # what other tests have left
    enter, seen = ffi._LLVMLock.__enter__, []

    def watched(self: Any) -> Any:
        seen.append(threading.get_ident())
        return enter(self)

    monkeypatch.setattr(ffi._LLVMLock, "__enter__", watched)
    jit.compile_ir(f"define i32 @f{time.monotonic_ns()}() {{ ret i32 1 }}")
    with pytest.raises(CompileError, match="LLVM rejected"):
        jit.compile_ir("define nonsense")
    scale = time.monotonic_ns() % 1e6
    hm.trace(lambda x: hm.exp(x * scale) @ x)(hm.ones((40, 40)))
    gc.collect()
    assert seen and threading.main_thread().ident not in seen


def fails() -> None:
    raise ValueError("of the step")


def test_a_step_goes_on_to_its_end_where_an_interrupt_ends_the_wait() -> None:
    begun, done = threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        time.sleep(0.2)
        done.set()

    def interrupt() -> None:
        begun.wait(10)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            uninterrupted(step)
    finally:
        signal.signal(signal.SIGINT, previous)
        thread.join()
    assert done.wait(10)
    assert uninterrupted(stepping) and not stepping()
    with pytest.raises(ValueError, match="of the step"):
        uninterrupted(fails)


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not holds() and time.monotonic() < end:
        time.sleep(0.001)
    return holds()


def test_a_compilation_that_an_interrupt_has_left_ends_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt at the entry of `__exit__` leaves the whole of it out."""
    monkeypatch.setattr(jit, "_most_threads", lambda: 3)
    before, usual = uninterrupted_module.running(), sys.getswitchinterval()
    compilation = jit.Compilation().__enter__()
    text = f"; {os.urandom(8).hex()}\n" + adder(5)
    for k in range(3):
        compilation.add(jit.Source(f"{text}; {k}", partial(str, text)))
    assert eventually(lambda: uninterrupted_module.running() == before + 3)
    del compilation
    assert eventually(lambda: uninterrupted_module.running() == before)
    assert sys.getswitchinterval() == usual


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyboardInterrupt()])
def test_where_no_thread_is_started_none_counts_as_running(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*arguments: object) -> None:
        raise error

    before = uninterrupted_module.running()
    monkeypatch.setattr("_thread.start_new_thread", start)
    with pytest.raises(type(error)):
        uninterrupted(lambda: 1)
    assert uninterrupted_module.running() == before


def test_the_process_ends_where_an_interrupt_left_a_compilation_open() -> None:
    """At the entry of `__exit__`, and nobody catches it: the traceback keeps the compilation."""
    program = """
import os, sys
from functools import partial
from hybridml_compiler.runtime import uninterrupted
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.spec import host_spec

def interrupt(frame, event, argument):
    if event == "call" and frame.f_code is jit.Compilation.__exit__.__code__:
        sys.setprofile(None)
        raise KeyboardInterrupt

jit._most_threads = lambda: 2
text = f"; {os.urandom(8).hex()}\\ndefine i64 @f(i64 %x) {{\\n  ret i64 %x\\n}}"
with jit.Compilation() as compilation:
    compilation.objects([jit.Source(text, partial(str, text))])
    assert uninterrupted.running() > 0
    sys.setprofile(interrupt)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0 and "KeyboardInterrupt" in run.stderr, run.stderr
