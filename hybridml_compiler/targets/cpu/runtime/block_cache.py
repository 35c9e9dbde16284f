"""Blocks of large arrays that are used again, in LLVM's text: `take` and `give` over the kernel's `mmap`.

The C library gives large blocks back to the kernel, and the kernel fills their pages with zeros before it lends them
again: x * 1.5 + y of 16 MiB took 6 ms, of which the arithmetic is 1.2. So freed blocks are kept, up to a total, and the
next array of about their size gets one. They do not come from the C library, because a block that is kept in its heap
keeps all that was freed below it: 900 MiB instead of 512. Nothing is locked: a slot is exchanged in one step, and a
block that one thread looks at is merely not found by others.
"""

from __future__ import annotations

MOST_BYTES = 512 << 20  # kept in all
_SLOTS = 1024  # a step of a network has hundreds of large arrays
_SPARE = 2  # a block may be larger than what is asked for by one part in 2**_SPARE

_PAGE, _READ_WRITE, _PRIVATE_ANONYMOUS, _HUGE_PAGES = 4096, 3, 0x22, 14  # of Linux
LIBRARY = ("mmap", "munmap", "madvise")

# The bytes of a block stand in its first word as long as it lives.
TEXT = f"""
@kept = internal global [{_SLOTS} x i64] zeroinitializer
@sizes = internal global [{_SLOTS} x i64] zeroinitializer   ; of what the slots hold, where they hold it still
@kept_bytes = internal global i64 0
@turn = internal global i64 0

declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)

; The block in a slot, or null; the slot is empty after that.
define internal ptr @empty(i64 %i) {{
  %slot = getelementptr i64, ptr @kept, i64 %i
  %seen = load atomic i64, ptr %slot monotonic, align 8
  %vacant = icmp eq i64 %seen, 0
  br i1 %vacant, label %none, label %exchange
exchange:
  %word = atomicrmw xchg ptr %slot, i64 0 acq_rel
  %block = inttoptr i64 %word to ptr
  ret ptr %block
none:
  ret ptr null
}}

; Whether a block has found an empty slot.
define internal i1 @keep(ptr %block) {{
entry:
  %word = ptrtoint ptr %block to i64
  %bytes = load i64, ptr %block
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %end = icmp eq i64 %i, {_SLOTS}
  br i1 %end, label %out, label %look
look:
  %slot = getelementptr i64, ptr @kept, i64 %i
  %seen = load atomic i64, ptr %slot monotonic, align 8
  %vacant = icmp eq i64 %seen, 0
  br i1 %vacant, label %exchange, label %next
exchange:
  %size = getelementptr i64, ptr @sizes, i64 %i
  store atomic i64 %bytes, ptr %size monotonic, align 8
  %pair = cmpxchg ptr %slot, i64 0, i64 %word acq_rel monotonic
  %kept = extractvalue {{i64, i1}} %pair, 1
  br i1 %kept, label %out, label %next
next:
  %i.next = add i64 %i, 1
  br label %loop
out:
  %found = phi i1 [false, %loop], [true, %exchange]
  ret i1 %found
}}

; Lets go of a block that was kept.
define internal void @drop(ptr %block) {{
  %none = icmp eq ptr %block, null
  br i1 %none, label %out, label %give
give:
  %bytes = load i64, ptr %block
  %before = atomicrmw sub ptr @kept_bytes, i64 %bytes monotonic
  call void @release(ptr %block)
  br label %out
out:
  ret void
}}

; Whether a block may serve: of at least so many bytes and not many more.
define internal i1 @fits(i64 %has, i64 %bytes) {{
  %spare = lshr i64 %bytes, {_SPARE}
  %most = add i64 %bytes, %spare
  %enough = icmp uge i64 %has, %bytes
  %sparing = icmp ule i64 %has, %most
  %both = and i1 %enough, %sparing
  ret i1 %both
}}

; A kept block that may serve, or null.
define internal ptr @find(i64 %bytes) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %end = icmp eq i64 %i, {_SLOTS}
  br i1 %end, label %none, label %look
look:
  %size = getelementptr i64, ptr @sizes, i64 %i
  %seen = load atomic i64, ptr %size monotonic, align 8
  %likely = call i1 @fits(i64 %seen, i64 %bytes)
  br i1 %likely, label %hold, label %next
hold:
  %block = call ptr @empty(i64 %i)
  %vacant = icmp eq ptr %block, null
  br i1 %vacant, label %next, label %measure
measure:
  %has = load i64, ptr %block
  %fits = call i1 @fits(i64 %has, i64 %bytes)
  br i1 %fits, label %take, label %back
back:
  %kept = call i1 @keep(ptr %block)
  br i1 %kept, label %next, label %full
full:
  call void @drop(ptr %block)
  br label %next
next:
  %i.next = add i64 %i, 1
  br label %loop
take:
  %before = atomicrmw sub ptr @kept_bytes, i64 %has monotonic
  ret ptr %block
none:
  ret ptr null
}}

define internal void @drop_next() {{
  %turn = atomicrmw add ptr @turn, i64 1 monotonic
  %i = urem i64 %turn, {_SLOTS}
  %block = call ptr @empty(i64 %i)
  call void @drop(ptr %block)
  ret void
}}

; Lets go of kept blocks, in turns, until no more than so many bytes are left.
define internal void @shrink(i64 %most) {{
entry:
  br label %loop
loop:
  %tries = phi i64 [0, %entry], [%tries.next, %next]
  %left = load atomic i64, ptr @kept_bytes monotonic, align 8
  %small = icmp ule i64 %left, %most
  %tired = icmp eq i64 %tries, {_SLOTS}
  %end = or i1 %small, %tired
  br i1 %end, label %out, label %next
next:
  call void @drop_next()
  %tries.next = add i64 %tries, 1
  br label %loop
out:
  ret void
}}

; A new block, or null, of whole pages.
define internal ptr @new(i64 %bytes) {{
  %block = call ptr @mmap(ptr null, i64 %bytes, i32 {_READ_WRITE}, i32 {_PRIVATE_ANONYMOUS}, i32 -1, i64 0)
  %failed = icmp eq ptr %block, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %none, label %advise
advise:
  %ignored = call i32 @madvise(ptr %block, i64 %bytes, i32 {_HUGE_PAGES})
  store i64 %bytes, ptr %block
  ret ptr %block
none:
  ret ptr null
}}

define internal void @release(ptr %block) {{
  %bytes = load i64, ptr %block
  %status = call i32 @munmap(ptr %block, i64 %bytes)
  ret void
}}

; A block of at least so many bytes; null where there is no memory.
define internal ptr @take(i64 %size) {{
entry:
  %up = add i64 %size, {_PAGE - 1}
  %bytes = and i64 %up, -{_PAGE}
  %found = call ptr @find(i64 %bytes)
  %none = icmp eq ptr %found, null
  br i1 %none, label %ask, label %out
ask:
  %new = call ptr @new(i64 %bytes)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %again, label %out
again:                                             ; with the memory of the kept ones
  call void @shrink(i64 0)
  %last = call ptr @new(i64 %bytes)
  br label %out
out:
  %block = phi ptr [%found, %entry], [%new, %ask], [%last, %again]
  ret ptr %block
}}

; Keeps a block of `take`, and lets go of others where that is too much.
define internal void @give(ptr %block) {{
  %bytes = load i64, ptr %block
  %huge = icmp ugt i64 %bytes, {MOST_BYTES}
  br i1 %huge, label %let_go, label %count
let_go:
  call void @release(ptr %block)
  ret void
count:
  %room = sub i64 {MOST_BYTES}, %bytes
  call void @shrink(i64 %room)
  %before = atomicrmw add ptr @kept_bytes, i64 %bytes monotonic
  %kept = call i1 @keep(ptr %block)
  br i1 %kept, label %out, label %full
full:
  call void @drop_next()
  %fits = call i1 @keep(ptr %block)
  br i1 %fits, label %out, label %drop
drop:                                              ; another thread was faster
  call void @drop(ptr %block)
  br label %out
out:
  ret void
}}
"""
