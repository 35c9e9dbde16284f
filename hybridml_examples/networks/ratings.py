"""Ratings that are like MovieLens', drawn from a stated law: no real person rated anything.

Users and items have latent vectors of 8 normal numbers. Items are popular by a power law, rank^-0.8. Users see items
drawn without replacement by popularity * exp(4 * cosine of the vectors). What was seen is to be predicted.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from .made import Arrays, Data, Samples

LATENT, POWER, TASTE = 8, 0.8, 4.0
EACH = 20  # items that a user saw
NEGATIVES = 4  # for each pair that is seen
CANDIDATES = 100  # in the test of He et al.: the item that was left out, and 99 that the user did not see


class Seen(NamedTuple):
    """Who saw what."""

    items: np.ndarray  # (users, EACH): the last one is left out of training
    unseen: np.ndarray  # (users, items - EACH), in an order that is drawn


@cache
def drawn(users: int, items: int, seed: int = 0) -> Seen:
    """The items that each user sees, by the law."""
    rng = np.random.default_rng(seed)
    of_users, of_items = rng.standard_normal((users, LATENT)), rng.standard_normal((items, LATENT))
    cosines = of_users @ of_items.T / np.linalg.norm(of_users, axis=1)[:, None] / np.linalg.norm(of_items, axis=1)
    odds = rng.permutation(-POWER * np.log(np.arange(1, items + 1))) + TASTE * cosines
    # The largest of odds + Gumbel's numbers are draws without replacement.
    order = np.argsort(-(odds + rng.gumbel(size=odds.shape)), axis=1)
    return Seen(*(rng.permuted(part, axis=1) for part in (order[:, :EACH], order[:, EACH:])))


def implicit(users: int = 400, items: int = 300) -> Data:
    """Batches (users (n,), items (n,), 1 where seen or 0 (n,) float32), four that are not seen for each that is.

    Those of testing are of `CANDIDATES` rows for each user, of which the first is the item that was left out.
    """
    found = drawn(users, items)

    def training(k: np.ndarray) -> Arrays:
        pair, which = k // (1 + NEGATIVES), k % (1 + NEGATIVES)
        user, place = pair // (EACH - 1), pair % (EACH - 1)
        # Places of the order that was drawn, far enough apart that a user's pairs have others.
        other = found.unseen[user, (place * NEGATIVES + which - 1) % found.unseen.shape[1]]
        return user, np.where(which == 0, found.items[user, place], other), (which == 0).astype(np.float32)

    def test(k: np.ndarray) -> Arrays:
        user, which = k // CANDIDATES, k % CANDIDATES
        item = np.where(which == 0, found.items[user, -1], found.unseen[user, -np.maximum(which, 1)])
        return user, item, (which == 0).astype(np.float32)

    about = (
        f"items (of {items}) that {users} users saw, drawn from a stated law: tastes, popularity by a power law; "
        f"one of each user's tests"
    )
    count = users * (EACH - 1) * (1 + NEGATIVES)
    return Data(about, Samples(count, training), Samples(users * CANDIDATES, test))
