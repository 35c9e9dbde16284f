"""The search for paths between groups while more are added (`fuse._Paths`) finds what a plain one does."""

from __future__ import annotations

import random

import pytest

from hybridml_compiler.schedule.fusion.fuse import _Paths
from hybridml_compiler.schedule.fusion.group import Group
from hybridml_compiler.walk import reachable


def needs(one: Group, other: Group) -> bool:
    return other in reachable([one], lambda g: g.after)


@pytest.mark.parametrize("seed", range(20))
def test_paths_while_groups_are_put_after_others(seed: int) -> None:
    rng = random.Random(seed)
    groups = [Group([], set(), set()) for _ in range(24)]
    for k, group in enumerate(groups):
        group.after.update(g for g in groups[:k] if rng.random() < 0.08)
    rng.shuffle(groups)
    late = {g for g in groups if rng.random() < 0.3}
    paths, added = _Paths(groups, late), 0
    for _ in range(40):
        group, others = rng.choice(groups), [g for g in groups if rng.random() < 0.1]
        found = any(needs(other, group) for other in others)
        assert paths.lead(others, group) is found
        if not found:
            added += len(others)
            paths.put_after(group, others)
    assert added
