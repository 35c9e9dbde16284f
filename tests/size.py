"""Lines of Python per folder, beside a budget: ``make size``. A folder over its budget wants a simpler idea first.

A budget is raised only with a note of what it buys and of what was deleted for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LINES_A_FILE = 550
FILES_A_FOLDER = 20  # beside its `__init__.py`
MANY_FILES = ("hybridml_compiler/ops", "hybridml/models")  # one file per family of operations, or per architecture


class Budget(NamedTuple):
    """The most lines that a folder may have, what they buy, and what was deleted when it was last raised."""

    lines: int
    buys: str
    deleted: str = ""


BUDGETS = {
    "hybridml": Budget(
        101660,
        "values of placed programs in checkpoints, their messages by calls (50); "
        "parts of functions on processes: blocks, homes of tensors (300); "
        "streams in stages that know their place and chain (830), of shards of four formats (550), their loader (90); "
        "queues of threads, tensors in memory of processes (350); "
        "parameters and state in parts, their checkpoints (520); layers that processes compute together (670); "
        "pipelines (610); costs of collectives, timelines and stragglers of all processes (970), steps of more "
        "processes than there are (710); "
        "actors: parameter servers (700), tables on their shards and compressed gradients (320), federated averaging "
        "(155), Hogwild (150), engines (295); "
        "processes that train together: groups over threads and MPI (860), collectives with gradients (270), data "
        "parallel (270), normalisation over all and parts of datasets (190), gradients on their way (140), launcher "
        "(75), checkpoints (130); "
        "NumPy arrays and loops of any size: stand-ins (180), their views (40), those that come often (65); "
        "what NumPy does with arrays among the arguments, which ran eagerly (270); "
        "where architectures differ from their papers (20); "
        "the command of the study (12); "
        "explain_speed: parts of a call, factors, sentences (1,600); "
        "the command `models` (10); "
        "published architectures (260), eight of speech, text and ratings (1,430), names of shared parts (10); "
        "published architectures (260), ten of images (825); "
        "settings of blocks and of the program, programs for each (200); "
        "figures, heads and tables of pages in one form, for text and HTML (390, in place of four templates); "
        "published architectures (260); "
        "examples of hm.cuda, constraints and models (150), switch (45), checkpoint by PyTorch's place (30); "
        "powers of NumPy's scalars by their operator, numbers beside elements (30); "
        "refusals of parametrizations before anything changes (50); "
        "casts of operands by a table (50); "
        "lengths of selections, lists of numbers as keys, parts of complex numbers, ufuncs' `at` on arrays (150); "
        "sparse gradients of embeddings, SparseAdam (630), lazy Adam, programs that read such gradients (185); "
        "lengths of selections and loops over them, loops in branches (320); "
        "summaries with operations and bytes (230), factors L D L^T (100); "
        "constraints of distributions, transforms to them, checks of tensors (745); "
        "embeddings of a table, plateaus (50), RandomErasing, RandomChoice, Lambda, dirac_ (145); "
        "parametrized and pruned weights (1,150), tools of nn.utils (130); "
        "distributions: 29 more, six lines of docstring each (1,450), transforms (800), cdf, mode and expand (210), "
        "divergences by moments in place of PyTorch's 60 formulas (290); "
        "captured calls without their text (10); "
        "packed sequences, folded normalisation (230); "
        "twelve optimizers, L-BFGS, nine schedules, averages of weights (2,140); "
        "loops that are not parted, `while a or b`, lists of tensors and lists turned around, numbers as places (240); "
        "sparse gradients of embeddings, SparseAdam (630); "
        "worker processes of loaders (740), readers of files (360), samplers, data sets of others, batches of pytrees "
        "(445), transforms of images and text (925); "
        "slices that wait, arrays that become tensors, programs for the data of most calls (220); "
        "native methods of the cache, calls before the tracer is loaded (55); "
        "types of NumPy of what steps compute of its floats (260); "
        "the training loop (480); "
        "metrics (450); "
        "files of torch.save, read without running their code (190); "
        "variables that steps update and assign, arrays that trade places (140); "
        "NumPy's scalars beside arrays, places that tensors decide, quotients of counts, first steps alone (60); "
        "`if`s without `else`: ways that join in one run of a step (165); "
        "lists that grow where data decides: buffers, items, uses of lists in the instructions, stacks (940); "
        "native calls that update arguments and give numbers (100); "
        "NumPy's functions in programs that make arrays (30); "
        "parts of arrays of any dtype, arrays that go on, objects of steps, ints outside of loops, linalg (395); "
        "branches of steps that join, flags that data decides (780); "
        "numbers that become tensors, NumPy's scalars from step to step, checks of Python's divisions (490); "
        "calls whose results are numbers (30); "
        "64 ways of a step, max and min of floats (60); "
        "ints of data in NumPy arrays, numbers beside other dtypes (80); "
        "min and max give one of their arguments (60); "
        "ways out of loops, lists in loops that data ends, loops over blocks, what to write instead of loops (680); "
        "slices whose ends data decides, ints of elements (390); "
        "ints, complex numbers and arrays of steps (380), short loops in loops, histories of steps (70); "
        "names of NumPy's, lists as operands, errors of gradients that arrays lose (420); "
        "loops of dual numbers and batches, gradients of loops of any number of steps (740); "
        "ranges that data ends, places of ints of data, branches with indices of their own (450); "
        "loops that numbers end, parts of loops, traces that are tried again, trials (560); "
        "native calls that update arguments, with gaps, keywords and containers (90); "
        "prange and vectorize (450); "
        "gradients of loops in segments, and of loops that data leaves (110); "
        "loops that data ends, over arrays, with lists that grow (450); gradients of loops (300); "
        "rows of arrays as inputs of segments, limits of time, eager calls known by their arguments (160); "
        "native methods (80); "
        "calls of devices whose like has come before, entries of their programs (350); "
        "loops captured by one step (700); NumPy arrays that traced functions make (1,040); methods of ufuncs (110); "
        "selections by masks that wait (490); "
        "native calls of values and tangents (230 lines), jvp= of users' operations and its check (90); "
        "lazy layers and tensors without a shape (450); "
        "devices by cost, page-locked memory (150); hm.cuda (330 lines), devices side by side; "
        "shapes, errors and examples in docstrings; fn.graph; guards, signatures and interpreters as types; devices; "
        "native calls of library functions, of rows and of their gradients; updates of optimizers as one operation; "
        "sizes that are symbols from the first program on; views without a call; "
        "numbers that traced code updates, tensors that it rebinds, ints that are positions; "
        "PyTorch's, NumPy's and JAX's spellings as tables (1,000 lines), texts, containers and clocks of traced steps "
        "(1,100), the command line and summaries (450), examples of all methods (300); vmap with a rule for every row, "
        "Jacobians, functions of modules (1,350); forward mode with a rule for every row, "
        "custom_jvp (1,050); autocast and GradScaler (330); loops of kernels of scalars (400)",
        "the wrappers per number of axes of nn, the second lists of public names, ten makers of tape nodes; programs "
        "of large draws, the test of each argument's size in every composite; the fast path of one number, recorded "
        "calls of rows, the count of bytes in arenas; copies of what is updated in place; methods that only "
        "passed their "
        "arguments on; jvp by two pullbacks; kernels of scalars by numba",
    ),
    "hybridml_compiler/sizes": Budget(
        1172,
        "bounds of strided loops and of squares of their numbers (25); "
        "sums of a size and a number, symbols as one object each (52); equality of remainders (15); "
        "equality of remainders (15); "
        "symbolic sizes and their guards; turns of conditions on steps (20); bounds remembered (25); bounds learnt "
        "from indices (20)",
    ),
    "hybridml_compiler/ops": Budget(
        9845,
        "programs that ranks compute together (20); "
        "collectives (215), queues (120), effects (65); "
        "powers of NumPy's scalars by their operator, less the loop of tables of steps (10); "
        "factors L D L^T (225); "
        "60 functions of NumPy's in place of four of linalg's, by one row in place of two (59); "
        "functions of NumPy's linalg (41); "
        "functions of complex numbers, to their last bit (65); "
        "places of reshapes that add axes of one (10); "
        "loops of elements in composites, reductions over masks (70); "
        "ufuncs of NumPy itself (40); sums over masks, sizes of orders and searches (60); send and recv; "
        "an example of every row; special functions, linear algebra, Fourier transforms, sorts; formulas as one"
        " operation; sizes of routines; "
        "complex numbers in kernels; the order of memory of results",
        "LU column by column, triangular systems by halves; sorts by counting and by packed keys",
    ),
    "hybridml_compiler/graph": Budget(
        2060,
        "effects behind checks (8); "
        "what an asynchronous operation was begun with (6); "
        "operations counted by a watch (5); "
        "whether steps of a loop need each other (180); types of rows over steps, remembered (35); "
        "symbols of steps in text and digest (50); "
        "checks: errors that are owed whether or not a result is read; devices; what a walk has seen, by bits; "
        "functions of an element with several results",
        "two evaluations of a graph of scalars in the front end",
    ),
    "hybridml_compiler/placement": Budget(
        1260,
        "parts of programs for ranks: where they are computed (75), by cost (75), messages (165); "
        "devices of operations: by operands (250 lines with the partition), by estimated cost (650)",
    ),
    "hybridml_compiler/passes": Budget(
        4310,
        "passes that are imported with the first graph that they may change (30); "
        "updates of few rows of a table (137); "
        "slices beside elements at data places, what each step gives alike (110); "
        "counts as ints (225), and as sums of arrays (60); "
        "carries in the shapes of their updates (45); "
        "tables of arrays of steps (50); "
        "loops of each element (175), steps of loops as an axis (205); "
        "tables of what functions make of steps (200); sums of shared loops (110); "
        "products that loops over rows add up (70); "
        "stacks of slices (60); updates that change nothing (40); control flow and rolled loops",
    ),
    "hybridml_compiler/schedule": Budget(
        7270,
        "what a rank computes before it waits, by a plan (15); "
        "what other processes wait for is sent early (20); "
        "work that goes on beside the program is begun early and awaited late (35); "
        "loops whose memory has a size that comes with the call (10); "
        "plans without fusion, recomputation, updates in place, shared memory (40); "
        "convolutions, transforms and footprints that are imported with the first of them (30); "
        "stencils over time in tiles of rows and steps: footprints of rows, shifts (370); "
        "loops of a single step (12); "
        "products that read a matrix together (160); "
        "operands that a lowering makes (15); "
        "loops that threads share (40); updates in place, of rows at computed indices, too (400); "
        "values computed again where memory has a limit, sums in the order of the program without one (340); "
        "matrices that are made tile by tile (120); "
        "how long reductions are cut on each target, positions of parts; "
        "convolutions of any number of images, of narrow operands, minimum cuts, fusion of batches; plans that "
        "the next program knows; Fourier "
        "transforms",
        "the choice of lanes, which is the target's",
    ),
    "hybridml_compiler/loops": Budget(
        5156, "polynomials of special functions; loops of scalars (240)", "the fallback to numba in the front end"
    ),
    "hybridml_compiler/targets": Budget(
        35810,
        "arenas of large programs that were held for good (45); "
        "a CPU without kernels for products or convolutions (20); "
        "native methods of few calls left unoptimized, polls compiled beside (15); "
        "LLVM that is loaded beside a capture (50), products and reductions imported with the first of them (50); "
        "calls that another program takes (5); sums and extremes of small tensors, indices of arrays (80); "
        "sums and extremes of small tensors, indices of arrays (80); "
        "code compiled beside the program (20); "
        "LLVM's passes over loops of elements, in place of the same by hand (60); "
        "loops in tiles of rows and steps (160); "
        "kernels of vectors in steps of loops (100), results and stamps of native calls (260); "
        "loops over single elements in registers (590); "
        "slots of tensors, their memory, elements of several dtypes, kernels of ours as loops (870); "
        "products that read a matrix together (80); "
        "native functions, results of one number (230); "
        "operators, keys and products of small tensors as native methods, exceptions passed on (1,120); "
        "orders, searches and positions (590); speeds of devices, page-locked memory, GPU programs on disk (450); "
        "rows that CuPy computes and launches of several kernels (500 lines), "
        "gradients of attention (600); "
        "reductions and scans that fill a GPU (450); "
        "CUDA C of loop nests, NVRTC and a simulator of its PTX (2,700 lines), of products and convolutions and "
        "attention with tensor cores (1,300), a driver "
        "protocol, a pool, graphs and what a machine lacks (1,500); "
        "points where a call can be stopped, convolutions of any number of images; convolutions of narrow "
        "operands, bounds of every access; a protocol, a reference target, devices; guards of "
        "native calls, scratch memory, order of keys, the memory of large arrays used again; launches as data; "
        "kernels of Fourier transforms (1,150 lines) and of linear algebra (1,550), which were callbacks of NumPy",
        "the thread pool and the futures of compilations; results that each native entry kept; two makers of builtins",
    ),
    "hybridml_compiler/runtime": Budget(
        1012,
        "effects of calls that end (1); "
        "sources read without `open` (10); "
        "deadlines, the line of a long compilation; folders by handle, threads that Ctrl-C does not split; "
        "digests of sources",
    ),
    "hybridml_compiler": Budget(
        70920,
        "programs that ranks compute together (360); "
        "queues (120), effects in common (65), behind checks (10); "
        "arrays that are donated (18), what other processes wait for (20); "
        "collectives, and their place among launches (265); "
        "sizes of loops that come with the call (35); "
        "arenas of large programs that were held for good (45); "
        "entries of an emptied cache that are kept (5); "
        "narrow operands below casts, kept (5); "
        "settings of blocks, switches of parts of the compiler (235); "
        "public names of errors (16); "
        "operations counted by a watch, native methods of few calls left unoptimized (65); "
        "large results of native methods in memory that is kept (10); "
        "first calls: late imports, LLVM loaded beside (190), arithmetic of sizes (25); "
        "factors L D L^T (225); "
        "first calls: late imports, LLVM loaded beside (190); "
        "updates of few rows of a table (165); "
        "sums and extremes of small tensors, indices of arrays (65); "
        "errors that NumPy drops (60); "
        "LLVM's passes over loops of elements (60), slices beside elements at data places (110); "
        "stencils over time in tiles of rows and steps (560); "
        "kernels of vectors in steps of loops (115), results and stamps of native calls (260); "
        "functions of NumPy's as one row (59); "
        "loops over single elements in registers (605), counts as ints and sums (285); "
        "slots of tensors, their memory, elements of several dtypes, kernels of ours as loops (880); "
        "carries in the shapes of their updates (45), integers of NumPy natively, memory that is kept (40); "
        "tables of arrays of steps, functions of complex numbers (115); "
        "loops of each element, of masks (245); "
        "products that read a matrix together (240), steps of loops as an axis (205); "
        "tables of what functions make of steps (200); native functions, results of one number (230); "
        "products that loops over rows add up (70); parts of loops (10); "
        "native methods of tensors (1,050); "
        "a GPU at its speed: attention in registers, rows kept, scatters, cuDNN, long sums in parts, cuBLAS after "
        "which loop nests follow (3,300); prepared launches, libcuda, late checks on a GPU (420); "
        "loops by one step, updates in place (800); its folders together",
        "25 walks of graphs, name lists of operations, eleven ways to declare a function",
    ),
    "tests": Budget(
        100650,
        "values of placed programs that are saved, returned or compared, Jacobians behind collectives (170); "
        "parts of programs on ranks (680); "
        "gradients behind traced forward passes with collectives (220), labels of gathers (15); "
        "sums in memory that is given up, errors behind buckets (50); "
        "streams in stages and in shards, cut and damaged files, states of others (970); "
        "queues and their errors (560), memory that processes share (225), threads beside a test (40); "
        "parts of parameters (280), layers in parts (490), pipelines (660), timelines and simulations (720), two hosts "
        "(60), sums where gradients lie (130); "
        "workers, servers, clients, and processes that are killed (880); "
        "processes that train together (1,450); styles looked at again (22); "
        "which products pack an operand (15); "
        "programs of any size (480); "
        "random programs of arrays among the arguments (210); "
        "what the commands of networks and the study say of wrong options (50); "
        "the study (360); "
        "explanations of speed (480); "
        "data, training and inference of the architectures (195); "
        "architectures of speech, text and ratings beside transformers and PyTorch, decoding (320); "
        "image architectures beside torchvision's, operands below casts (330); "
        "switches of the compiler, settings (530); "
        "structure and contrast of pages (200); "
        "the site and the rows of its pages for newcomers (305), less a walk over spaces (35); switch (85); "
        "powers of NumPy's scalars, numbers beside elements, ints of inner loops (65); "
        "elements of selections that are views, steps that choose (60); "
        "operands of several dtypes, results in memory that is kept (40); "
        "lengths of selections, lists of numbers as keys, parts of complex numbers (240); "
        "short ways of sizes, questions of max (31); "
        "lazy Adam, sparse gradients from before a call, globals named as attributes (235); "
        "lengths of selections, loops in branches (265); "
        "summaries (140), factors L D L^T (125), complex numbers and bools (45); "
        "constraints and supports of all distributions, mistakes of fit (345), erased images (30); "
        "what a review found wrong in held sparse gradients, stacks of transforms and checks (95); "
        "parametrized and pruned weights (605); "
        "what a review found wrong in loops, schedules, workers and resumed trainings (80); "
        "distributions beside SciPy, Jacobians, divergences by integrals (600); "
        "packed sequences, folded normalisation (115); "
        "optimizers, schedules and L-BFGS beside PyTorch (870); "
        "random programs of loops with conditions near ends, of `or`, of places and of lists of tensors (690); "
        "sparse gradients (415); "
        "loaders with worker processes, transforms, readers, samplers (1,260); "
        "slices that wait, arrays that become tensors, with random programs (245); "
        "native reductions, indices of arrays (60); "
        "types of NumPy in steps, with random programs (165); "
        "the training loop (220), its breaks and errors (25); narrow scores, series, parts of vectors (35); "
        "metrics (125); "
        "files of torch.save (160); "
        "captured tensors that native calls update (75); "
        "memory that loops take (570); "
        "NumPy's numbers and functions before tensors (140); "
        "elements at data places, with random programs (135); "
        "NumPy's scalars beside arrays, places that tensors decide, first steps by themselves, narrower arrays (130); "
        "`if`s without `else` (95); "
        "lists that grow where data decides, with random programs (420); "
        "stencils over time, random programs of them (310); "
        "native calls that update arguments (210); "
        "functions of NumPy's in programs, what is counted towards native methods (110); "
        "arrays, objects and ints of steps, with random programs (1,150); "
        "branches that join, flags, random programs of them (590); "
        "numbers that become tensors, errors of numbers in steps, random programs of both (870); "
        "loops over single elements, counts (255); "
        "lifetimes of tensors, elements of several dtypes, copies and masks beside the Python ones (320); "
        "ways of a step (220); "
        "ints of data in loops (160); "
        "loops in loops that search, grow lists and choose (230); "
        "searches, loops over blocks, lists in loops that data ends (1010); "
        "slices and places of data (450); "
        "numbers and arrays of steps, short loops in loops (450); "
        "programs of NumPy's tutorials (440), its names and lists (200), gradients that arrays lose (190); "
        "products that read a matrix together (200), steps of loops as an axis (170); "
        "loops inside of transforms, gradients of while loops (560); "
        "ranges and places of data (450); "
        "bounds of numbers, tensors as keys (140); updated arguments, native functions (270); "
        "gradients of loops in segments, and of loops that data leaves (300); "
        "the time of first calls (250); "
        "native methods beside the Python ones, and their errors (400); "
        "products that a library leaves, convolutions, scatters, attention and rows of a GPU (1,000); "
        "calls on a GPU (330); "
        "loops captured by one step, updates in place (500); "
        "programs with NumPy arrays (320); devices by cost, page-locked memory (750); "
        "rows and programs in forward mode (380); CuPy's functions on a stand-in, launches of several kernels; "
        "operations and kernels of users; reductions and scans of a GPU; "
        "generated CUDA kernels and planted bugs of them, products and tensor cores; "
        "rows and programs under vmap; "
        "spellings, errors as they are shown, interrupts, texts and containers of traced steps; programs of "
        "traced Python, planted errors, fuzzers, other machines; fn.graph; transformations of loops; "
        "transforms and routines",
        "duplicate random programs; a helper module per pair of test files became tests/support; the second evaluator",
    ),
    "hybridml_examples": Budget(
        4740,
        "Hogwild (85); "
        "six networks in JAX (330); "
        "how long the study waits for a peer (5); "
        "what the commands say of wrong options, names and files (85); "
        "the study: networks beside other libraries (430), measuring (760), findings and report (720); "
        "the architectures' data, training, inference (1,000); programs of pages",
        "workers of the benchmarks",
    ),
    "benchmarks": Budget(
        9320,
        "memory of ZeRO's stages (120), simulations beside real steps (170); "
        "ways to train with workers (155); "
        "data parallel and all-reduce beside peers, kills of a training (460); "
        "matrix products beside PyTorch's, by layout and in turns (110); "
        "sequences and arrays of many lengths beside peers (190); "
        "the study's page of results (75), shares that explanations leave (60); "
        "workers, which the study has (130); "
        "optimizers beside PyTorch (180); "
        "optimizers beside PyTorch (165); "
        "steps on embeddings (100); loops over single elements (250); "
        "loaders that feed a step (245); "
        "loops over single elements (250); "
        "loops over single elements (220); "
        "what compilers take for no data (40); "
        "the check of a GPU by parts, in three precisions, with compilers beside it (180); "
        "loops and arrays: ten programs in NumPy (200 lines), for Numba and JAX (230), their worker and report (440); "
        "transforms beside two libraries, memory predicted and taken (530); "
        "a check of everything on a GPU (two streams at once, memory shared with PyTorch, measurements that fail: 60); "
        "four libraries, twenty workloads, two reports: times, launches; two trees in turns; 150 eager operations and "
        "twelve models; seven networks",
        "rounds of two trees that were timed by a loop of their own; before, nothing: it took the place of scripts "
        "that were not kept",
    ),
}


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def measure(root: Path = ROOT) -> dict[str, tuple[int, int]]:
    """Folder -> (files, lines)."""
    found = {}
    for folder in BUDGETS:
        files = sorted((root / folder).rglob("*.py"))
        found[folder] = len(files), sum(map(lines, files))
    return found


def crowded(root: Path = ROOT) -> dict[str, int]:
    """Folder -> files, of those with too many side by side."""
    found = {}
    for package in ("hybridml", "hybridml_compiler"):
        for face in sorted((root / package).rglob("__init__.py")):
            count = len(list(face.parent.glob("*.py"))) - 1
            if count > FILES_A_FOLDER:
                found[face.parent.relative_to(root).as_posix()] = count
    return found


def main() -> None:
    print(f"{'folder':<28}{'files':>7}{'lines':>8}{'budget':>8}")
    for folder, (files, count) in measure().items():
        over = "  over" if count > BUDGETS[folder].lines else ""
        print(f"{folder:<28}{files:>7}{count:>8}{BUDGETS[folder].lines:>8}{over}")


if __name__ == "__main__":
    main()
