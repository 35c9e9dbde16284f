"""Loops that search in loops, grow lists, and choose numbers: what they share."""

import math

import numpy as np
import pytest

import hybridml as hm

X = np.random.default_rng(0).random(40)


def same(f, *args):
    """The result of eager code, which a traced function gives in two calls, with the same updates of its argument."""
    x, traced = hm.tensor(X), hm.trace(f)
    eager = f(x, *args)
    for _ in range(2):
        given = hm.tensor(X)
        found = traced(given, *args)
        assert type(found) is type(eager)
        assert np.array_equal(found, eager) and np.array_equal(given, x)
    return eager


def test_a_list_that_grows_in_one_branch_of_a_step_whose_other_one_has_checks():
    def grown(x, n):
        out = []
        for j in range(20):
            if j % 5 == 0:
                continue
            if n < 0:
                return n
            out.append(1)
            n = int(x[j] * 10)
        return out

    assert len(same(grown, 0)) == 16


@pytest.mark.parametrize("steps", [3, 20])
def test_a_search_in_a_loop_over_a_range_of_data_that_grows_a_list(steps):
    def search(x, q, limit):
        out = []
        for _ in range(q[1], q[1] + 5):
            for k in range(steps):
                if x[k] < limit:
                    return "found"
            out.append(1)
        return out

    q = hm.tensor([3, 4])
    assert same(search, q, 2.0) == "found"
    assert same(search, q, -1.0) == [1] * 5


@pytest.mark.parametrize("limit", [0.9, 5.0])
def test_a_way_out_of_a_short_loop_in_a_while_loop(limit):
    def search(x, limit):
        j = 0
        while j < 20:
            if x[j] > 0.5:
                for k in range(4):
                    if x[j + k] > limit:
                        return x
            j += 1
        return j

    assert type(same(search, limit)) is (int if limit > 1 else hm.Tensor)


def test_an_update_of_what_min_gives_is_one_of_its_argument():
    def of_two(x):
        m = min(x[0], x[1])
        m -= 5
        return m

    def of_a_loop(x):
        m = x[0]
        for v in x:
            m = min(m, v)
        m -= 5
        return m

    def in_a_loop(x):
        f = 0.0
        for i in range(len(x)):
            f += x[i] * 0.5
            f = min(f, x[len(x) - 1 - i])
        return f

    for f in (of_two, of_a_loop, in_a_loop):
        same(f)


def test_what_min_gives_of_a_tensor_and_the_number_of_a_step_may_be_that_number():
    def least(x):
        f = x.sum()
        for k in range(20):
            f = min(f, k)
        return f

    assert type(same(least)) is int


def test_a_sum_in_a_range_of_data_of_tensors_and_functions_of_the_step_may_be_a_number():
    def total(x, n, limit):
        s = 0.5
        for k in range(n):
            s += min(math.sin(0.1 * k), x[3] + limit)
        return s

    n = hm.tensor(8)
    assert type(same(total, n, 5.0)) is float
    assert type(same(total, n, -5.0)) is hm.Tensor
