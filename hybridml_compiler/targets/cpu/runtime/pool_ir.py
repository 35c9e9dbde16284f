"""The native half of the fork-join pool: LLVM IR of the worker loop and of `hml_parallel`, and of the control block.

A job is split into ranges; a range has a state word `4 * epoch + {0 open, 1 claimed, 2 done}` on its own cache line.
Whoever changes open to claimed runs the range. The caller posts, then claims like everybody else, so that a worker that
has not started yet (asleep, or queued behind the caller on one core) costs nothing: its range is simply taken. With the
other core busy, two threads then take the time of one, not a time slice; with it free, half.
The epoch in the state makes a late worker harmless: its claim fails unless the very job that it saw is still running,
and then the job line is stable.

Waiting is a spin whose limit adapts (found work: doubled, had to sleep: halved; after a sleep shorter than the spin
budget, on another core than the caller's: doubled, since spinning would have been right), then a futex: no CPU time
while idle.
"""

from __future__ import annotations

import platform
import sys

from ....config import MAX_THREADS

LINE = 64
MAX_RANGES = MAX_THREADS

# Byte offsets in the control block. A line that one side writes while another polls is written by that side only.
EPOCH, SLEEPERS, BUSY = 0, 64, 128
JOB_FN, JOB_ARG, JOB_TOTAL, JOB_GRANULE, JOB_UNITS, JOB_RANGES, JOB_CPU = 192, 200, 208, 216, 224, 232, 240
THREADS, STARTED, MAX_SPIN, STOP, START = 256, 264, 272, 280, 288
STATES = 512
BLOCK_BYTES = STATES + LINE * MAX_RANGES

SPIN_NS = 50_000  # longest wait without sleeping; one idle period burns at most this much of a core
MIN_SPIN = 8  # polls

EXPORTS = ("hml_parallel", "hml_parallel_chunks", "hml_worker", "hml_stop", "hml_try_lock", "hml_unlock", "hml_spin")
LINUX = sys.platform == "linux"
LIBC = ("syscall", "sched_yield", "sched_getcpu", "clock_gettime") if LINUX else ()

FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}.get(platform.machine(), 0)
PARALLEL = LINUX and FUTEX_NUMBER != 0 and sys.byteorder == "little"  # a futex word is the low half of the epoch

PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "AMD64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),  # yield
    "arm64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}.get(platform.machine(), ("", ""))

# FUTEX_WAIT_PRIVATE is 128, FUTEX_WAKE_PRIVATE 129; clock 1 is CLOCK_MONOTONIC.
SYSTEM = f"""
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i32 @clock_gettime(i32, ptr)

define internal void @sleep_while(ptr %word, i64 %seen) {{
  %low = trunc i64 %seen to i32
  %status = call i64 (i64, ...) @syscall(i64 {FUTEX_NUMBER}, ptr %word, i32 128, i32 %low, ptr null)
  ret void
}}
define internal void @wake(ptr %word, i32 %count) {{
  %status = call i64 (i64, ...) @syscall(i64 {FUTEX_NUMBER}, ptr %word, i32 129, i32 %count)
  ret void
}}
define internal void @yield() {{
  %status = call i32 @sched_yield()
  ret void
}}
define internal i32 @cpu() {{
  %cpu = call i32 @sched_getcpu()
  ret i32 %cpu
}}
define internal i64 @now(ptr %time) {{
  %status = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.p = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.p
  %whole = mul i64 %seconds, 1000000000
  %ns = add i64 %whole, %rest
  ret i64 %ns
}}
"""

# Without a futex there are no workers (threads stays 1): every call below is then unreachable, and only has to link.
NO_SYSTEM = """
define internal void @sleep_while(ptr %word, i64 %seen) { ret void }
define internal void @wake(ptr %word, i32 %count) { ret void }
define internal void @yield() { ret void }
define internal i32 @cpu() { ret i32 0 }
define internal i64 @now(ptr %time) { ret i64 0 }
"""

RANGES = f"""
{PAUSE[0]}

; Run range %i of the job in the block: borders are multiples of the granule, sizes differ by one granule at most.
define internal void @run_range(ptr %pool, i64 %i, i64 %ranges) {{
  %fn.p = getelementptr i8, ptr %pool, i64 {JOB_FN}
  %arg.p = getelementptr i8, ptr %pool, i64 {JOB_ARG}
  %total.p = getelementptr i8, ptr %pool, i64 {JOB_TOTAL}
  %granule.p = getelementptr i8, ptr %pool, i64 {JOB_GRANULE}
  %units.p = getelementptr i8, ptr %pool, i64 {JOB_UNITS}
  %fn = load ptr, ptr %fn.p
  %arg = load ptr, ptr %arg.p
  %total = load i64, ptr %total.p
  %granule = load i64, ptr %granule.p
  %units = load i64, ptr %units.p
  %next = add i64 %i, 1
  %lo.units = mul i64 %units, %i
  %hi.units = mul i64 %units, %next
  %lo.unit = udiv i64 %lo.units, %ranges
  %hi.unit = udiv i64 %hi.units, %ranges
  %lo = mul i64 %lo.unit, %granule
  %hi.full = mul i64 %hi.unit, %granule
  %over = icmp ugt i64 %hi.full, %total
  %hi = select i1 %over, i64 %total, i64 %hi.full
  call void %fn(ptr %arg, i64 %lo, i64 %hi)
  ret void
}}

; Claim and run what is open of job %epoch, the ranges of participant %who first; the number of ranges it ran.
define internal i64 @work(ptr %pool, i64 %epoch, i64 %who) {{
entry:
  %ranges.p = getelementptr i8, ptr %pool, i64 {JOB_RANGES}
  %threads.p = getelementptr i8, ptr %pool, i64 {THREADS}
  %states = getelementptr i8, ptr %pool, i64 {STATES}
  %ranges = load atomic i64, ptr %ranges.p monotonic, align 8
  %threads = load atomic i64, ptr %threads.p monotonic, align 8
  %scaled = mul i64 %who, %ranges
  %own = udiv i64 %scaled, %threads
  %inside = icmp ult i64 %own, %ranges             ; false only while the thread count is changing
  %first = select i1 %inside, i64 %own, i64 0
  %open = shl i64 %epoch, 2
  %claimed = or i64 %open, 1
  %done = or i64 %open, 2
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%k.next, %next]
  %ran = phi i64 [0, %entry], [%ran.next, %next]
  %more = icmp ult i64 %k, %ranges
  br i1 %more, label %try, label %out
try:
  %straight = add i64 %first, %k
  %past = icmp uge i64 %straight, %ranges
  %wrapped = sub i64 %straight, %ranges
  %i = select i1 %past, i64 %wrapped, i64 %straight
  %offset = mul i64 %i, {LINE}
  %state = getelementptr i8, ptr %states, i64 %offset
  %seen = load atomic i64, ptr %state monotonic, align 8
  %is.open = icmp eq i64 %seen, %open
  br i1 %is.open, label %claim, label %next
claim:
  %exchange = cmpxchg ptr %state, i64 %open, i64 %claimed acquire monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %exchange, 1
  br i1 %won, label %run, label %next
run:
  call void @run_range(ptr %pool, i64 %i, i64 %ranges)
  store atomic i64 %done, ptr %state release, align 8
  %ran.more = add i64 %ran, 1
  br label %next
next:
  %ran.next = phi i64 [%ran, %try], [%ran, %claim], [%ran.more, %run]
  %k.next = add i64 %k, 1
  br label %loop
out:
  ret i64 %ran
}}
"""

WORKER = f"""
; A worker's life. The stop word is read after the epoch: hml_stop writes it first, so that no order of events loses it.
define void @hml_worker(ptr %pool, i64 %who) {{
entry:
  %time = alloca [2 x i64]
  %sleepers = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %stop.p = getelementptr i8, ptr %pool, i64 {STOP}
  %cpu.p = getelementptr i8, ptr %pool, i64 {JOB_CPU}
  %max.p = getelementptr i8, ptr %pool, i64 {MAX_SPIN}
  %max = load i64, ptr %max.p
  %first = load atomic i64, ptr %pool acquire, align 8
  br label %wait
wait:
  %last = phi i64 [%first, %entry], [%epoch, %worked]
  %limit.0 = phi i64 [%max, %entry], [%limit.w, %worked]
  %stop = load atomic i32, ptr %stop.p acquire, align 4
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %out, label %spin
spin:
  %k = phi i64 [0, %wait], [%k.next, %poll], [0, %woke]
  %limit = phi i64 [%limit.0, %wait], [%limit, %poll], [%limit.s, %woke]
  %epoch = load atomic i64, ptr %pool acquire, align 8
  %new = icmp ne i64 %epoch, %last
  br i1 %new, label %found, label %poll
poll:
  {PAUSE[1]}
  %k.next = add i64 %k, 1
  %patient = icmp ult i64 %k.next, %limit
  br i1 %patient, label %spin, label %sleep
sleep:
  %before = call i64 @now(ptr %time)
  %s1 = atomicrmw add ptr %sleepers, i32 1 seq_cst
  call void @sleep_while(ptr %pool, i64 %last)
  %s2 = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %after = call i64 @now(ptr %time)
  %slept = sub i64 %after, %before
  %short = icmp ult i64 %slept, {SPIN_NS}
  %mine = call i32 @cpu()
  %theirs = load atomic i32, ptr %cpu.p monotonic, align 4
  %apart = icmp ne i32 %mine, %theirs
  %grow = and i1 %short, %apart
  br i1 %grow, label %longer, label %shorter
longer:
  %twice.s = shl i64 %limit, 1
  br label %woke
shorter:
  %half = lshr i64 %limit, 1
  br label %woke
woke:
  %wish = phi i64 [%twice.s, %longer], [%half, %shorter]
  %low = icmp ult i64 %wish, {MIN_SPIN}
  %floored = select i1 %low, i64 {MIN_SPIN}, i64 %wish
  %high = icmp ugt i64 %floored, %max
  %limit.s = select i1 %high, i64 %max, i64 %floored
  br label %spin
found:
  %ran = call i64 @work(ptr %pool, i64 %epoch, i64 %who)
  %useful = icmp ne i64 %ran, 0
  %spun = icmp ne i64 %k, 0
  %hit = and i1 %useful, %spun
  br i1 %hit, label %more, label %worked
more:
  %twice = shl i64 %limit, 1
  %above = icmp ugt i64 %twice, %max
  %capped = select i1 %above, i64 %max, i64 %twice
  br label %worked
worked:
  %limit.w = phi i64 [%limit, %found], [%capped, %more]
  br label %wait
out:
  ret void
}}
"""

CALLER = f"""
; fn(arg, lo, hi) over [0, total), one range a participant; returns when all are done. Nested and second callers: alone.
define void @hml_parallel(ptr %pool, ptr %fn, ptr %arg, i64 %total, i64 %granule) {{
  call void @hml_parallel_chunks(ptr %pool, ptr %fn, ptr %arg, i64 %total, i64 %granule, i64 1)
  ret void
}}

; The same with %per ranges a participant: balances uneven work, and a neighbour that takes a core.
define void @hml_parallel_chunks(ptr %pool, ptr %fn, ptr %arg, i64 %total, i64 %granule.0, i64 %per) {{
entry:
  %busy = getelementptr i8, ptr %pool, i64 {BUSY}
  %threads.p = getelementptr i8, ptr %pool, i64 {THREADS}
  %started.p = getelementptr i8, ptr %pool, i64 {STARTED}
  %threads.0 = load atomic i64, ptr %threads.p monotonic, align 8
  %alone = icmp ule i64 %threads.0, 1
  %small = icmp sle i64 %total, %granule.0
  %direct = or i1 %alone, %small
  br i1 %direct, label %serial, label %lock
lock:
  %exchange = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic, align 4
  %won = extractvalue {{ i32, i1 }} %exchange, 1
  br i1 %won, label %check, label %serial
check:
  %started = load i64, ptr %started.p
  %threads.1 = load atomic i64, ptr %threads.p monotonic, align 8
  %ready = icmp eq i64 %started, %threads.1
  br i1 %ready, label %post, label %start
start:                                            ; first job of the process (or since a fork or a change of the count)
  %start.p = getelementptr i8, ptr %pool, i64 {START}
  %start.fn = load ptr, ptr %start.p
  call void %start.fn()
  %threads.2 = load atomic i64, ptr %threads.p monotonic, align 8
  br label %post
post:
  %threads = phi i64 [%threads.1, %check], [%threads.2, %start]
  %positive = icmp sgt i64 %granule.0, 0
  %granule = select i1 %positive, i64 %granule.0, i64 1
  %padded = add i64 %total, %granule
  %last.index = sub i64 %padded, 1
  %units = udiv i64 %last.index, %granule
  %wish = mul i64 %threads, %per
  %few = icmp ult i64 %units, %wish
  %bounded = select i1 %few, i64 %units, i64 %wish
  %many = icmp ugt i64 %bounded, {MAX_RANGES}
  %ranges = select i1 %many, i64 {MAX_RANGES}, i64 %bounded
  %fn.p = getelementptr i8, ptr %pool, i64 {JOB_FN}
  %arg.p = getelementptr i8, ptr %pool, i64 {JOB_ARG}
  %total.p = getelementptr i8, ptr %pool, i64 {JOB_TOTAL}
  %granule.p = getelementptr i8, ptr %pool, i64 {JOB_GRANULE}
  %units.p = getelementptr i8, ptr %pool, i64 {JOB_UNITS}
  %ranges.p = getelementptr i8, ptr %pool, i64 {JOB_RANGES}
  store ptr %fn, ptr %fn.p
  store ptr %arg, ptr %arg.p
  store i64 %total, ptr %total.p
  store i64 %granule, ptr %granule.p
  store i64 %units, ptr %units.p
  store atomic i64 %ranges, ptr %ranges.p monotonic, align 8
  %states = getelementptr i8, ptr %pool, i64 {STATES}
  %previous = load atomic i64, ptr %pool monotonic, align 8
  %epoch = add i64 %previous, 1
  %open = shl i64 %epoch, 2
  %done = or i64 %open, 2
  br label %opening
opening:
  %i = phi i64 [0, %post], [%i.next, %opening]
  %offset = mul i64 %i, {LINE}
  %state = getelementptr i8, ptr %states, i64 %offset
  store atomic i64 %open, ptr %state release, align 8
  %i.next = add i64 %i, 1
  %opened = icmp eq i64 %i.next, %ranges
  br i1 %opened, label %publish, label %opening
publish:
  %published = atomicrmw add ptr %pool, i64 1 seq_cst
  %sleepers.p = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %sleepers = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %rouse, label %mine
rouse:
  %cpu = call i32 @cpu()
  %cpu.p = getelementptr i8, ptr %pool, i64 {JOB_CPU}
  store atomic i32 %cpu, ptr %cpu.p monotonic, align 4
  %ranges.32 = trunc i64 %ranges to i32
  %others = sub i32 %ranges.32, 1
  call void @wake(ptr %pool, i32 %others)
  br label %mine
mine:
  %ran = call i64 @work(ptr %pool, i64 %epoch, i64 0)
  br label %joining
joining:                                          ; all ranges are claimed now: wait for those of others
  %j = phi i64 [0, %mine], [%j.next, %joined]
  %all = icmp eq i64 %j, %ranges
  br i1 %all, label %release, label %join
join:
  %j.offset = mul i64 %j, {LINE}
  %j.state = getelementptr i8, ptr %states, i64 %j.offset
  br label %look
look:
  %polls = phi i64 [0, %join], [%polls.next, %relax]
  %now = load atomic i64, ptr %j.state acquire, align 8
  %finished = icmp eq i64 %now, %done
  br i1 %finished, label %joined, label %wait
wait:
  %polls.next = add i64 %polls, 1
  %long = icmp ugt i64 %polls.next, 500
  br i1 %long, label %give, label %relax
give:                                             ; the worker may be queued behind us on this very core
  call void @yield()
  br label %relax
relax:
  {PAUSE[1]}
  br label %look
joined:
  %j.next = add i64 %j, 1
  br label %joining
release:
  store atomic i32 0, ptr %busy release, align 4
  ret void
serial:
  call void %fn(ptr %arg, i64 0, i64 %total)
  ret void
}}
"""

CONTROL = f"""
; Ask every worker to leave; the caller holds the lock.
define void @hml_stop(ptr %pool) {{
  %stop.p = getelementptr i8, ptr %pool, i64 {STOP}
  store atomic i32 1, ptr %stop.p release, align 4
  %published = atomicrmw add ptr %pool, i64 1 seq_cst
  call void @wake(ptr %pool, i32 2147483647)
  ret void
}}
define i32 @hml_try_lock(ptr %pool) {{
  %busy = getelementptr i8, ptr %pool, i64 {BUSY}
  %exchange = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic, align 4
  %won = extractvalue {{ i32, i1 }} %exchange, 1
  %result = zext i1 %won to i32
  ret i32 %result
}}
define void @hml_unlock(ptr %pool) {{
  %busy = getelementptr i8, ptr %pool, i64 {BUSY}
  store atomic i32 0, ptr %busy release, align 4
  ret void
}}
; %n pauses: one takes 4 to 45 ns, depending on the CPU, and the spin limit is a time.
define void @hml_spin(ptr %word, i64 %n) {{
entry:
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%k.next, %loop]
  %value = load atomic i64, ptr %word acquire, align 8
  {PAUSE[1]}
  %k.next = add i64 %k, 1
  %end = icmp uge i64 %k.next, %n
  br i1 %end, label %out, label %loop
out:
  ret void
}}
"""


def text() -> str:
    """Text of the whole module."""
    return (SYSTEM if PARALLEL else NO_SYSTEM) + RANGES + WORKER + CALLER + CONTROL
