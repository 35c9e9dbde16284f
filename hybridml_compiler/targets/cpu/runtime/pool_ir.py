"""The native half of the fork-join pool: the worker loop, and `hml_parallel`.

A job is split into ranges; a range has a state word `4 * epoch + {0 open, 1 claimed, 2 done}` on its own cache line.
Whoever changes open to claimed runs the range. The caller posts, then claims like everybody else, so that a worker that
has not started yet (asleep, or queued behind the caller on one core) costs nothing: its range is simply taken. With the
other core busy, two threads then take the time of one, not a time slice; with it free, half.
The epoch in the state makes a late worker harmless: its claim fails unless the very job that it saw is still running,
and then the job line is stable.

Waiting is a spin whose limit adapts (found work: doubled, had to sleep: halved; where the job came within the spin
budget, on another core than the caller's: doubled, since spinning would have been right), then a futex: no CPU time
while idle. A job that may be stopped (`hml_parallel_stops`) is once its caller, who polls between ranges, is told so:
the ranges that are left are not run. Without a futex there are no workers (threads stays 1), and what would call the
system is never reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..llvm.native import NULL, NativeBuilder, Record, i32, native
from ..llvm.native import text as module_text
from ..spec import host_spec
from .pool_block import FUTEX_NUMBER, LINE, MAX_RANGES, MIN_SPIN, PARALLEL, POOL, SPIN_NS
from .thread_block import POLL, SCRATCH, THREAD

FUTEX_WAIT, FUTEX_WAKE, MONOTONIC = 128, 129, 1  # the first two for threads of one process
POLLS = 500  # of the caller, until it lets others run on its core
EVERYBODY = (1 << 31) - 1
JOB = ("function", "argument", "total", "granule", "units")


def futex(c: NativeBuilder, pool: Record, what: int, number: Any) -> None:
    """Sleep while the epoch is this number, or wake so many."""
    if PARALLEL:
        c.extern("i64", "syscall", FUTEX_NUMBER, pool.at("epoch"), what, number, NULL)


def own_cpu(c: NativeBuilder) -> Any:
    return c.extern("i32", "sched_getcpu") if PARALLEL else i32(0)


def nanoseconds(c: NativeBuilder, clock: Any) -> Any:
    if not PARALLEL:
        return c.variable(0).value
    c.extern("i32", "clock_gettime", i32(MONOTONIC), clock)
    return clock.load() * 1_000_000_000 + clock.item(1)


def state_of(pool: Record, i: Any) -> Any:
    return pool.at("states") + i * LINE


def run_range(c: NativeBuilder, job: Mapping[str, Any], i: Any, ranges: Any) -> None:
    """Borders are multiples of the granule, sizes differ by one granule at most."""
    units, granule, total = job["units"], job["granule"], job["total"]
    first, end = units * i // ranges * granule, units * (i + 1) // ranges * granule
    c.through(job["function"], "void", job["argument"], first, c.least(end, total))


def poll(c: NativeBuilder, pool: Record) -> None:
    """Stops the caller's own job where its call shall end."""
    with c.if_then(pool["stops"] != 0):
        with c.if_then(c.extern("i64", POLL) != 0, likely=False):
            pool.at("stopped").store(1, "monotonic")


def work(c: NativeBuilder, pool: Record, epoch: Any, first: Any, *, polls: bool = False) -> Any:
    """Claims and runs what is open of a job, from this range on; the number of ranges that it ran."""
    ranges, is_open, ran = pool.at("ranges").load(order="monotonic"), epoch << 2, c.variable(0)
    with c.each(ranges) as k:
        straight = k + first
        i = c.select(straight >= ranges, straight - ranges, straight)
        state = state_of(pool, i)
        with c.if_then(state.load(order="monotonic") == is_open):
            with c.if_then(state.replace(is_open, is_open | 1, "acquire")):
                with c.if_then(pool.at("stopped").load(order="monotonic") == 0, likely=True):
                    run_range(c, {name: pool[name] for name in JOB}, i, ranges)
                state.store(is_open | 2, "release")
                ran.value += 1
                if polls:
                    poll(c, pool)
    return ran.value


def first_of(c: NativeBuilder, pool: Record, who: Any) -> Any:
    """The range that a participant begins with."""
    ranges, threads = (pool.at(name).load(order="monotonic") for name in ("ranges", "threads"))
    own = who * ranges // threads
    return c.select(own < ranges, own, 0)  # it is none of them only while the thread count is changing


@native("void", POOL, "i64")
def hml_worker(c: NativeBuilder, pool: Record, who: Any) -> None:
    """A worker's life. The stop word is read after the epoch: hml_stop writes it first, so that no order of events
    loses it."""
    c.extern("ptr", SCRATCH).struct(THREAD)["job"] = pool.at("stopped")
    most, epoch_at = pool["max_spin"], pool.at("epoch")
    limit, last = c.variable(most), c.variable(epoch_at.load(order="acquire"))
    with c.loop():
        with c.if_then(pool.at("stop").load("i32", "acquire") != 0):
            c.ret_void()
        polls = c.variable(0)
        with c.loop():
            epoch = epoch_at.load(order="acquire")
            c.break_if(epoch != last.value)
            c.pause()
            polls.value += 1
            with c.if_then(polls.value >= limit.value):
                limit.value = sleep(c, pool, last.value, limit.value, most)
                polls.value = 0
        ran = work(c, pool, epoch, first_of(c, pool, who))
        hit = (ran != 0) & (polls.value != 0)
        limit.value = c.select(hit, c.least(limit.value << 1, most), limit.value)
        last.value = epoch


def sleep(c: NativeBuilder, pool: Record, epoch: Any, limit: Any, most: Any) -> Any:
    """Sleeps while this is the epoch; the limit of polls from then on."""
    clock = c.local("i64", 2)
    before = nanoseconds(c, clock)
    pool.at("sleepers").update("add", i32(1), "seq_cst")
    futex(c, pool, FUTEX_WAIT, epoch)
    pool.at("sleepers").update("sub", i32(1), "seq_cst")
    # To the post and not to the wake-up, which alone takes 50 us on a virtual machine: workers would never spin again.
    short = pool.at("posted").load(order="monotonic") - before < SPIN_NS
    apart = pool.at("cpu").load("i32", "monotonic") != own_cpu(c)
    wish = c.select(short & apart, limit << 1, limit >> 1)
    return c.least(c.greatest(wish, MIN_SPIN), most)


@native("void", POOL, "ptr", "ptr", "i64", "i64", "i64", "i64")
def hml_parallel_stops(
    c: NativeBuilder, pool: Record, function: Any, argument: Any, total: Any, granule: Any, per: Any, stops: Any
) -> None:
    """function(argument, first, end) over [0, total), `per` ranges a participant: several balance uneven work, and a
    neighbour that takes a core. Returns when all are done, or where the job `stops`, when it is to stop. Nested and
    second callers: alone."""
    alone, busy = c.label("alone"), pool.at("busy")
    c.unless((pool.at("threads").load(order="monotonic") > 1) & c.icmp_signed(">", total, granule), alone)
    c.unless(busy.replace(i32(0), i32(1), "acquire"), alone)
    # First job of the process, or since a fork or a change of the count.
    with c.if_then(pool.at("threads").load(order="monotonic") != pool["started"], likely=False):
        c.through(pool["start"], "void")
    job = job_of(c, function, argument, total, granule)
    ranges = c.least(c.least(job["units"], pool.at("threads").load(order="monotonic") * per), MAX_RANGES)
    for name, value in job.items():
        pool[name] = value
    pool["stops"] = stops
    pool.at("stopped").store(0, "monotonic")
    pool.at("ranges").store(ranges, "monotonic")
    epoch = pool.at("epoch").load(order="monotonic") + 1
    is_open = epoch << 2
    with c.each(ranges) as i:
        state_of(pool, i).store(is_open, "release")
    pool.at("epoch").update("add", 1, "seq_cst")
    with c.if_then(pool.at("sleepers").load("i32", "seq_cst") != 0):
        pool.at("cpu").store(own_cpu(c), "monotonic")
        pool.at("posted").store(nanoseconds(c, c.local("i64", 2)), "monotonic")
        futex(c, pool, FUTEX_WAKE, ranges - 1)
    work(c, pool, epoch, 0, polls=True)
    with c.each(ranges) as i:  # all are claimed now
        wait_for(c, pool, state_of(pool, i), is_open | 2)
    busy.store(i32(0), "release")
    c.ret_void()
    c.place(alone)
    with c.if_then(stops == 0):
        c.through(function, "void", argument, 0, total)
        c.ret_void()
    job = job_of(c, function, argument, total, granule)
    ranges = c.least(job["units"], per * pool.at("threads").load(order="monotonic"))
    with c.each(ranges) as i:
        with c.if_then(c.extern("i64", POLL) != 0, likely=False):
            c.ret_void()
        run_range(c, job, i, ranges)


def job_of(c: NativeBuilder, function: Any, argument: Any, total: Any, granule: Any) -> dict[str, Any]:
    granule = c.select(c.icmp_signed(">", granule, 0), granule, 1)
    return dict(zip(JOB, (function, argument, total, granule, (total + granule - 1) // granule), strict=True))


@native("void", POOL, "ptr", "ptr", "i64", "i64", "i64")
def hml_parallel_chunks(
    c: NativeBuilder, pool: Record, function: Any, argument: Any, total: Any, granule: Any, per: Any
) -> None:
    """The same of a job that nothing stops."""
    hml_parallel_stops(c, pool, function, argument, total, granule, per, 0)


def wait_for(c: NativeBuilder, pool: Record, state: Any, done: Any) -> None:
    polls = c.variable(0)
    with c.loop():
        c.break_if(state.load(order="acquire") == done)
        polls.value += 1
        if PARALLEL:
            with c.if_then(polls.value > POLLS):  # the worker may be queued behind us on this very core
                c.extern("i32", "sched_yield")
                poll(c, pool)
        c.pause()


@native("void", POOL, "ptr", "ptr", "i64", "i64")
def hml_parallel(c: NativeBuilder, pool: Record, function: Any, argument: Any, total: Any, granule: Any) -> None:
    """The same with one range a participant."""
    hml_parallel_chunks(c, pool, function, argument, total, granule, 1)


@native("void", POOL)
def hml_stop(c: NativeBuilder, pool: Record) -> None:
    """Asks every worker to leave; the caller holds the lock."""
    pool.at("stop").store(i32(1), "release")
    pool.at("epoch").update("add", 1, "seq_cst")
    futex(c, pool, FUTEX_WAKE, EVERYBODY)


@native("i32", POOL)
def hml_try_lock(c: NativeBuilder, pool: Record) -> None:
    won = pool.at("busy").replace(i32(0), i32(1), "acquire")
    c.ret(c.select(won, i32(1), i32(0)))


@native("void", POOL)
def hml_unlock(c: NativeBuilder, pool: Record) -> None:
    pool.at("busy").store(i32(0), "release")


@native("void", "ptr", "i64")
def hml_spin(c: NativeBuilder, word: Any, count: Any) -> None:
    """Polls so often: a pause takes 4 to 45 ns, depending on the CPU, and the spin limit is a time."""
    with c.each(count):
        word.load(order="acquire")
        c.pause()


FUNCTIONS = (
    hml_parallel, hml_parallel_chunks, hml_parallel_stops, hml_worker, hml_stop, hml_try_lock, hml_unlock, hml_spin,
)  # fmt: skip


def text() -> str:
    """LLVM IR of the module."""
    return module_text("pool", host_spec(), *FUNCTIONS)
