"""Compiling and linking: errors are errors, objects link to each other, and threads give the same bytes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import llvmlite.binding
import pytest

from hybridml_compiler.errors import CompileError
from hybridml_compiler.record import replace
from hybridml_compiler.runtime import uninterrupted as uninterrupted_module
from hybridml_compiler.runtime.uninterrupted import stepping, uninterrupted
from hybridml_compiler.targets.cpu.runtime import jit, llvm_library
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


@pytest.mark.parametrize("opt", [0, 1, 3])
def test_compile_and_call(opt: int) -> None:
    data = jit.compile_ir(adder(5), opt=opt)
    library = loader.load([data], exports=["add5"])
    assert as_function(library.address("add5"))(37) == 42


def test_others_get_their_llvm_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that we leave out is left out once for all threads, and is there again, also after an error."""
    usual = sys.getswitchinterval()  # of the interpreter: the turns of threads are shorter meanwhile
    said: list[str] = []
    monkeypatch.setattr(llvm_library, "TRIED", llvm_library.llvm_version_info()[0])
    monkeypatch.setattr(llvm_library, "set_option", said.append)
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
from hybridml_compiler.targets.cpu.runtime import jit, llvm_library
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import host_spec
gc.disable()
for k in range(20):
    try:
        jit._compiled([f"define i64 @f{k}() {{ ret i64 {k} }}"] * 2, 1, host_spec())
    except CompileError as error:
        error.kept = error
gc.collect()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_functions_are_declared_as_llvmlite_declares_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prototypes are those of the installed llvmlite; an unknown version is compared before the first call."""
    llvm_library.compare_declarations()
    assert llvmlite.__version__.rpartition(".")[0] in llvm_library.VERSIONS
    declared = llvmlite.binding.ffi.lib.LLVMPY_SetTarget
    usual = declared.argtypes
    monkeypatch.setattr(llvmlite, "__version__", "9.9.0")
    try:
        declared.argtypes = [ctypes.c_void_p, ctypes.c_int]
        with pytest.raises(
            ImportError, match=r"llvmlite 9\.9\.0 declares LLVMPY_SetTarget otherwise than versions 0\.45 to"
        ):
            llvm_library._Library()
    finally:
        declared.argtypes = usual
    llvm_library._Library()


def test_a_library_that_cannot_be_loaded_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_library, "library_path", lambda: "/nowhere/libllvmlite.so")
    with pytest.raises(ImportError, match=r"llvmlite .* cannot be loaded: /nowhere/libllvmlite\.so"):
        llvm_library._Library()


def test_llvm_is_the_same_for_us_and_for_llvmlite() -> None:
    name, features, triple = llvm_library.host_cpu()
    assert name == llvmlite.binding.get_host_cpu_name() and features == llvmlite.binding.get_host_cpu_features()
    assert triple == llvmlite.binding.get_default_triple()
    assert llvm_library.llvm_version_info() == llvmlite.binding.llvm_version_info


def test_a_code_generator_is_of_one_thread_at_a_time_and_used_again() -> None:
    cpu = replace(host_spec(), cores=3)  # a key that nothing else has
    with jit._machine(cpu, 1) as one, jit._machine(cpu, 1) as other:
        assert one is not other
    with pytest.raises(ZeroDivisionError), jit._machine(cpu, 1) as again:
        assert again in (one, other)
        raise ZeroDivisionError
    assert jit._idle[cpu, 1] == [one, other] or jit._idle[cpu, 1] == [other, one]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork")
def test_a_child_forked_while_threads_compile_compiles_too() -> None:
    stop = threading.Event()

    def work(k: int) -> None:
        while not stop.is_set():
            jit.compile_ir(adder(k))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            pid = os.fork()
            if not pid:
                signal.alarm(20)
                os._exit(len(jit.compile_ir(adder(77))) < 100)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


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
from hybridml_compiler.targets.cpu.runtime import jit, llvm_library
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
