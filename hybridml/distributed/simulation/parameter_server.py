"""Workers that read parameters of servers, and send them gradients, all of them in each step.

Each server has a part of the parameters and one link, in which its messages to the workers follow each other, latencies
included: they are mostly the work of the server. A worker has a link, too, for what comes from all servers at once.
"""

from __future__ import annotations

from hybridml_compiler.errors import ArgumentError

from .links import Link


def simulate_parameter_server(
    work_ms: float, nbytes: float, workers: int, servers: int, link: Link, *, backup: int = 0, spread_ms: float = 0.0
) -> float:
    """Predicts the milliseconds of a synchronous step: all workers read all parameters, work, and send gradients.

    work_ms: of a worker; `spread_ms` is by how much the slowest takes longer, those between evenly. nbytes: of the
    parameters, of which each of the `servers` has an equal part. backup: workers for which the step does not wait.
    Raises ArgumentError for less than a worker and a server, and for as many backup workers as workers.

    >>> from hybridml import distributed as dist
    >>> link = dist.Link(latency=0.0, bandwidth=1e9)
    >>> [round(dist.simulate_parameter_server(5.0, 1e6, workers, 1, link), 6) for workers in (1, 2, 100)]
    [7.0, 8.0, 106.0]
    """
    if workers < 1 or servers < 1 or not 0 <= backup < workers:
        raise ArgumentError(
            "simulate_parameter_server: needs 1 worker and 1 server, and fewer backup workers than workers, got "
            f"{workers}, {servers} and {backup}"
        )
    each, own = 1e3 * link.message(nbytes / servers), 1e3 * link.message(nbytes)
    free, received = 0.0, []
    for k in range(workers):
        read = max((k + 1) * each, own)  # by a server's link, and by the worker's
        sent = read + work_ms + spread_ms * k / max(workers - 1, 1)
        free = max(free, sent) + each
        received.append(max(free, sent + own))
    return received[workers - 1 - backup]
