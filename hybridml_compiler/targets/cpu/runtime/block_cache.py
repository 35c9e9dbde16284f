"""Blocks of large arrays that are used again, over the kernel's `mmap`, as native code; the four functions of NumPy's
memory handler (allocation.py) are at the end, and one that calls a function under it.

The C library gives large blocks back to the kernel, and the kernel fills their pages with zeros before it lends them
again: x * 1.5 + y of 16 MiB took 6 ms, of which the arithmetic is 1.2. So freed blocks are kept, up to a total, and the
next array of about their size gets one. They do not come from the C library, because a block that is kept in its heap
keeps all that was freed below it: 900 MiB instead of 512. Nothing is locked: a slot is exchanged in one step, and a
block that one thread looks at is merely not found by others. The bytes of a block stand in its first word as long as
it lives.
"""

from __future__ import annotations

from typing import Any

from ..llvm.native import NULL, NativeBuilder, i32, native
from ..llvm.native import text as module_text
from ..spec import host_spec

MOST_BYTES = 512 << 20  # kept in all
SLOTS = 1024  # a step of a network has hundreds of large arrays
SPARE = 2  # a block may be larger than what is asked for by one part in 2**SPARE
PAGE, READ_WRITE, PRIVATE_ANONYMOUS, HUGE_PAGES = 4096, 3, 0x22, 14  # of Linux
# A block of a huge page or more begins one: of 4 MiB that begin anywhere the kernel can lend only half in huge pages.
HUGE_PAGE = 2 << 20
# Bytes between a block, which begins a page, and its array: FRONT, times 1 to FRONTS in turns. A kernel that reads two
# arrays at once takes a sixth longer (add of 4 MiB, Zen 4) where their places in a page are within 512 bytes. NumPy's
# large arrays begin 16 bytes after a page.
FRONT, FRONTS = 576, 6


def slot(c: NativeBuilder, i: Any) -> Any:
    """Holds the address of a block, or 0."""
    return c.words("kept", SLOTS) + i * 8


def size_of(c: NativeBuilder, i: Any) -> Any:
    """Holds the bytes of what the slot holds, where it holds it still."""
    return c.words("sizes", SLOTS) + i * 8


def kept_bytes(c: NativeBuilder) -> Any:
    return c.words("kept_bytes")


def serves(has: Any, nbytes: Any) -> Any:
    """A block of at least so many bytes, and not many more."""
    return (has >= nbytes) & (has <= nbytes + (nbytes >> SPARE))


@native("ptr", "i64")
def empty(c: NativeBuilder, i: Any) -> None:
    """The block in a slot, or null; the slot is empty after that."""
    c.ret_if(slot(c, i).load(order="monotonic") == 0, 0)
    c.ret(slot(c, i).update("xchg", NULL, "acq_rel"))


@native("i1", "ptr")
def keep(c: NativeBuilder, block: Any) -> None:
    """Whether a block has found an empty slot."""
    nbytes = block.load()
    with c.each(SLOTS) as i, c.if_then(slot(c, i).load(order="monotonic") == 0):
        size_of(c, i).store(nbytes, "monotonic")
        c.ret_if(slot(c, i).replace(NULL, block, "acq_rel"), "true")
    c.ret("false")


@native("void", "ptr")
def release(c: NativeBuilder, block: Any) -> None:
    c.extern("i32", "munmap", block, block.load())


@native("void", "ptr")
def drop(c: NativeBuilder, block: Any) -> None:
    """Lets go of a block that was kept, if it is one."""
    with c.if_then(block != 0):
        kept_bytes(c).update("sub", block.load(), "monotonic")
        release(c, block)


@native("void")
def drop_next(c: NativeBuilder) -> None:
    drop(c, empty(c, c.words("turn").update("add", 1, "monotonic") % SLOTS))


@native("void", "i64")
def shrink(c: NativeBuilder, most: Any) -> None:
    """Lets go of kept blocks, in turns, until no more than so many bytes are left."""
    with c.each(SLOTS):
        c.break_if(kept_bytes(c).load(order="monotonic") <= most)
        drop_next(c)


@native("ptr", "i64")
def find(c: NativeBuilder, nbytes: Any) -> None:
    """A kept block that may serve, or null."""
    with c.each(SLOTS) as i, c.if_then(serves(size_of(c, i).load(order="monotonic"), nbytes)):
        block = empty(c, i)
        with c.if_then(block != 0):
            has = block.load()
            with c.if_then(serves(has, nbytes)):
                kept_bytes(c).update("sub", has, "monotonic")
                c.ret(block)
            with c.if_then(~keep(c, block)):
                drop(c, block)
    c.ret(0)


@native("ptr", "i64")
def new(c: NativeBuilder, nbytes: Any) -> None:
    """A block of whole pages, or null."""
    flags = (i32(READ_WRITE), i32(PRIVATE_ANONYMOUS), i32(-1), 0)
    spare, skipped, is_huge = c.variable(0), c.variable(0), nbytes >= HUGE_PAGE
    with c.if_then(is_huge):
        spare.value = HUGE_PAGE
    mapped = c.extern("ptr", "mmap", NULL, nbytes + spare.value, *flags)
    c.ret_if(mapped + 1 == 0, 0)  # MAP_FAILED is -1
    with c.if_then(is_huge):
        skipped.value = (0 - c.word(mapped)) & (HUGE_PAGE - 1)
        with c.if_then(skipped.value != 0):
            c.extern("i32", "munmap", mapped, skipped.value)
        c.extern("i32", "munmap", mapped + (skipped.value + nbytes), HUGE_PAGE - skipped.value)
    block = mapped + skipped.value
    c.extern("i32", "madvise", block, nbytes, i32(HUGE_PAGES))
    block.store(nbytes)
    c.ret(block)


@native("ptr", "i64")
def take(c: NativeBuilder, size: Any) -> None:
    """A block of at least so many bytes; null where there is no memory."""
    nbytes = (size + (PAGE - 1)) & -PAGE
    found = find(c, nbytes)
    c.ret_if(found != 0, found)
    made = new(c, nbytes)
    c.ret_if(made != 0, made)
    shrink(c, 0)
    c.ret(new(c, nbytes))  # with the memory of the kept ones


@native("void", "ptr")
def give(c: NativeBuilder, block: Any) -> None:
    """Keeps a block of `take`, and lets go of others where that is too much."""
    nbytes = block.load()
    with c.if_then(nbytes > MOST_BYTES):
        release(c, block)
        c.ret_void()
    shrink(c, MOST_BYTES - nbytes)
    kept_bytes(c).update("add", nbytes, "monotonic")
    with c.if_then(~keep(c, block)):
        drop_next(c)
        with c.if_then(~keep(c, block)):  # another thread was faster
            drop(c, block)


def block_of(c: NativeBuilder, array: Any) -> Any:
    """The block in whose first page the array begins."""
    return array + (0 - (c.word(array) & (PAGE - 1)))


@native("ptr", "ptr", "i64")
def hml_malloc(c: NativeBuilder, context: Any, size: Any) -> None:
    c.ret_if(size >= 1 << 62, 0)
    block = take(c, size + FRONT * FRONTS)
    c.ret_if(block == 0, 0)
    c.ret(block + (c.words("front").update("add", 1, "monotonic") % FRONTS + 1) * FRONT)


@native("ptr", "ptr", "i64", "i64")
def hml_calloc(c: NativeBuilder, context: Any, count: Any, size: Any) -> None:
    nbytes = count * size  # of an array that there is: no more than an address
    array = hml_malloc(c, context, nbytes)
    with c.if_then(array != 0):
        c.extern("ptr", "memset", array, i32(0), nbytes)
    c.ret(array)


@native("ptr", "ptr", "ptr", "i64")
def hml_realloc(c: NativeBuilder, context: Any, array: Any, size: Any) -> None:
    made = hml_malloc(c, context, size)
    with c.if_then(made != 0):
        block = block_of(c, array)
        end = block + block.load()
        c.extern("ptr", "memcpy", made, array, c.least(size, c.word(end) - c.word(array)))
        give(c, block)
    c.ret(made)


@native("void", "ptr", "ptr", "i64")
def hml_free(c: NativeBuilder, context: Any, array: Any, size: Any) -> None:
    with c.if_then(array != 0):
        give(c, block_of(c, array))


@native("ptr", "ptr", "ptr", "i64")
def hml_with_handler(c: NativeBuilder, own: Any, args: Any, n: Any) -> None:
    """`with_handler(handler, function, *args)`, a builtin of CPython: the function's result, under a memory handler."""
    before = c.extern("ptr", "PyDataMem_SetHandler", args.item(0, "ptr"))
    c.ret_if(before == 0, 0)
    made = c.extern("ptr", "PyObject_Vectorcall", args.item(1, "ptr"), args + 16, n - 2, NULL)
    c.extern("void", "Py_DecRef", c.extern("ptr", "PyDataMem_SetHandler", before))
    c.extern("void", "Py_DecRef", before)
    c.ret(made)


def text() -> str:
    """LLVM IR of the module."""
    return module_text("block_cache", host_spec(), hml_malloc, hml_calloc, hml_realloc, hml_free, hml_with_handler)
