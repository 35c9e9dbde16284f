"""Two tables of papers, with rows of ours: their figures are of other hardware and are quoted, not measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from .figures import Record, digits, names, rate, timed


class Table(NamedTuple):
    """A table of a paper: `columns` are its models with the network here that is the same, if there is one."""

    title: str
    source: str
    columns: dict[str, str]
    rows: dict[str, tuple[str, ...]]
    ours: Callable[[Record, str, str], str]
    about: str  # our rows


def _rate(record: Record, network: str, who: str) -> str:
    """Samples a second, and tokens for what translates: those of the target, whose second size is the length."""
    entry = record["networks"][network]
    found = rate(entry, who)
    if found is None:
        return ""
    return digits(found * (entry["shapes"][-1][1] if network == "gnmt" else 1))


def _step(record: Record, network: str, who: str) -> str:
    """Milliseconds of a step with its batch."""
    entry = record["networks"][network]
    calls = timed(entry, who, "step")
    return f"{digits(calls['median'] * 1e3)} (batch {entry['batch']})" if calls else ""


# fmt: off
TABLES = (
    Table(
        "Training speed, after Table 1 of the PyTorch paper",
        "Paszke et al., PyTorch: An Imperative Style, High-Performance Deep Learning Library, NeurIPS 2019, Table 1. "
        "Theirs: float32 on one NVIDIA Quadro GP100 beside two Intel Xeon E5-2698 v4; images a second, tokens a second "
        "(GNMTv2), samples a second (NCF). MobileNet is v2 here.",
        {"AlexNet": "alexnet", "VGG-19": "vgg19", "ResNet-50": "resnet50", "MobileNet": "mobilenet_v2",
         "GNMTv2": "gnmt", "NCF": "ncf"},
        {
            "Chainer":      ("778 ± 15", "", "219 ± 1", "", "", ""),
            "CNTK":         ("845 ± 8", "84 ± 3", "210 ± 1", "", "", ""),
            "MXNet":        ("1554 ± 22", "113 ± 1", "218 ± 2", "444 ± 2", "", ""),
            "PaddlePaddle": ("933 ± 123", "112 ± 2", "192 ± 4", "557 ± 24", "", ""),
            "TensorFlow":   ("1422 ± 27", "66 ± 2", "200 ± 1", "216 ± 15", "9631 ± 1.3 %", "4.8e6 ± 2.9 %"),
            "PyTorch":      ("1547 ± 316", "119 ± 1", "212 ± 2", "463 ± 17", "15512 ± 4.8 %", "5.4e6 ± 3.4 %"),
        },
        _rate,
        "samples (tokens) a second",
    ),
    Table(
        "Training step, after Table 1 of the TensorFlow paper",
        "Abadi et al., TensorFlow: A System for Large-Scale Machine Learning, OSDI 2016, section 6.1. Theirs: "
        "milliseconds of a training step in float32 on one NVIDIA Titan X beside a six-core Intel i7-5930K; batches of "
        "128 images, 64 for OxfordNet, which is model A of the VGG paper. Of these networks AlexNet alone is here.",
        {"AlexNet": "alexnet", "Overfeat": "", "OxfordNet": "", "GoogleNet": ""},
        {
            "Caffe":      ("324", "823", "1068", "1935"),
            "Neon":       ("87", "211", "320", "270"),
            "Torch":      ("81", "268", "529", "470"),
            "TensorFlow": ("81", "279", "540", "445"),
        },
        _step,
        "milliseconds a step",
    ),
)
# fmt: on


def ours(table: Table, record: Record) -> Iterator[tuple[str, list[str]]]:
    """Our rows of a table: a candidate and a cell for each column, empty where nothing was measured."""
    for who in names(record):
        cells = [
            table.ours(record, network, who) if network in record["networks"] else ""
            for network in table.columns.values()
        ]
        if any(cells):
            yield who, cells
