"""Plans made and run without code generation, on plain arrays.

Results that agree with the graph's interpreter say that fusion, lowering and the memory plan are right; a target that
disagrees after that is itself at fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.record import replace
from hybridml_compiler.schedule.launch import Plan
from hybridml_compiler.schedule.plan import make_plan
from hybridml_compiler.targets import run_plan as walk
from hybridml_compiler.targets.cpu.capabilities import capabilities
from hybridml_compiler.targets.cpu.spec import host_spec
from hybridml_compiler.targets.host_machine import HostMachine
from hybridml_compiler.targets.reference.target import TARGET, has_library


def plan_of(graph: Graph, donate: Mapping[int, int] | None = None, *, blas: bool = True, **more: bool) -> Plan:
    made = {"has_library": has_library if blas else lambda _: False, "takes_epilogue": lambda _: True, "cores": 2}
    return make_plan(graph, donate or {}, replace(capabilities(host_spec()), **made, **more))


def run_plan(
    plan: Plan, arrays: Sequence[np.ndarray], count: int, donate: Mapping[int, int]
) -> list[np.ndarray] | None:
    """The graph's `count` outputs, or None if an index check failed. Donated inputs are overwritten."""
    results = [np.empty(aval.shape, aval.dtype) for aval in plan.outputs]
    given, made = ([array.reshape(-1).view(np.uint8) for array in group] for group in (arrays, results))
    if not walk.run_plan(plan, given, made, HostMachine(TARGET.run)):
        return None
    fresh = dict(zip(plan.fresh, results, strict=True))
    return [fresh[k] if k in fresh else arrays[donate[k]] for k in range(count)]
