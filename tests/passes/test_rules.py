"""Each rule of the passes: it applies to its own samples, and their value keeps every bit."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, topological
from hybridml_compiler.graph.rewrite import Rule, Rules, rewrite
from hybridml_compiler.graph.text import print_graph
from hybridml_compiler.graph.verify import verify
from hybridml_compiler.ops.table import OPS, WITH_BODIES
from hybridml_compiler.passes.canonical_views import VIEW_RULES
from hybridml_compiler.passes.concatenations import CONCAT_RULES
from hybridml_compiler.passes.contractions import CONTRACTION_RULES
from hybridml_compiler.passes.fold import FOLD_RULES
from hybridml_compiler.passes.simplify import SIMPLIFY_RULES
from hybridml_compiler.passes.sparse_updates import SPARSE_RULES
from hybridml_compiler.passes.updates import UPDATE_RULES
from tests.support.random_graphs import data, same_bits

RULES = (
    *FOLD_RULES, *VIEW_RULES, *CONTRACTION_RULES, *SIMPLIFY_RULES, *CONCAT_RULES, *UPDATE_RULES, *SPARSE_RULES,
)  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_applies_to_its_samples_and_keeps_every_bit(rule: Rule) -> None:
    samples = list(rule.samples())
    assert samples, "a rule without a sample is not tested"
    for sample in samples:
        inputs = tuple(node for node in topological([sample]) if node.is_input)
        before = Graph(inputs, (sample,))
        stats: Counter[str] = Counter()
        after = rewrite(before, Rules([rule]), stats)
        verify(after)
        assert stats[rule.name], f"does not apply to its sample:\n{print_graph(before)}"
        assert after.outputs[0].aval == sample.aval
        for seed in range(8):
            rng = np.random.default_rng(seed)
            arrays = [data(node.aval, rng) for node in inputs]
            (old,), (new,) = interpret(before, arrays), interpret(after, arrays)
            assert same_bits(old, new), f"{old}\n{new}\n{print_graph(before)}\n{print_graph(after)}"


def test_rules_name_rows_and_have_names_of_their_own() -> None:
    assert {name for rule in RULES for name in rule.ops} <= OPS.keys() | WITH_BODIES.keys()
    assert len({rule.name for rule in RULES}) == len(RULES)
