"""The study: what its page says of figures that are made up, and one tiny network that is measured."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import study_page
from hybridml import __main__, models
from hybridml_examples.study import charts, figures, findings, measure, papers, report, run
from hybridml_examples.study.candidates import CANDIDATES, EAGER, TRACED
from hybridml_examples.study.networks import NETWORKS, OPTIMIZERS, QUICK, Size, grown, known
from hybridml_examples.study.process import Failure
from hybridml_examples.study.tasks import TASKS, Task
from hybridml_examples.study.worker import Worker

Record = dict[str, Any]


def calls(median: float, spread: float = 0.1) -> Record:
    return {"median": median, "lower": median * (1 - spread), "upper": median * (1 + spread), "samples": 9}


def entry(step: float, infer: float | None = None, **more: Any) -> Record:
    found = {"note": "", "difference": 1e-7, "drift": 1e-6, "cold": 2.0, "warm": 0.5, "memory": 100 << 20}
    return {**found, "step": calls(step), "infer": calls(infer or step / 3), **more}


def trained(losses: list[float], seconds: float, first: float) -> Record:
    return {"note": "", "losses": losses, "seconds": seconds, "first": first, "steps": len(losses), "reached": True}


def made(**candidates: dict[str, Record]) -> Record:
    """A record of networks with a batch of 8."""
    shapes = {"kind": "vision", "batch": 8, "options": {}, "sizes": {}, "tiny": True, "shapes": [[8, 3, 64, 64], [8]]}
    facts = {"command": "python -m hybridml study", "date": "2026-01-01", "cpu": "a <processor>", "threads": 2}
    return {
        **facts, "versions": {"python": "3.11", "torch": "2.0"}, "quick": True, "rounds": 3, "load": 0.1,
        "networks": {name: {**shapes, "candidates": entries} for name, entries in candidates.items()},
        "growth": [], "tasks": {}, "left_out": [],
    }  # fmt: skip


@pytest.fixture
def record() -> Record:
    """ResNet-18 wins, AlexNet loses to torch.compile, JAX fails; growth, a task, and a part that was left out."""
    found = made(
        resnet18={
            EAGER: entry(0.04, cold=0.1), TRACED: entry(0.01), "torch": entry(0.03, memory=200 << 20),
            "torch.compile": entry(0.02, cold=20.0), "jax": {"note": "differs by 2.0e-01"},
        },
        alexnet={
            EAGER: entry(0.05, cold=0.1), TRACED: entry(0.03, memory=300 << 20), "torch": entry(0.06),
            "torch.compile": entry(0.02),
        },
    )  # fmt: skip
    found["growth"] = [
        {"network": "resnet18", "axis": axis, "value": value, "batch": batch, "median": median}
        for axis, value, batch, median in (
            ("batch", 1, 1, {TRACED: 0.001, "torch": 0.009}), ("batch", 4, 4, {TRACED: 0.004, "torch": 0.018}),
            ("threads", 1, 8, {TRACED: 0.02, "torch": 0.03}), ("threads", 2, 8, {TRACED: 0.01, "torch": 0.02}),
        )
    ]  # fmt: skip
    found["tasks"] = {
        "digits": {
            "title": "digits", "data": "Scans.", "network": "resnet18", "target": 0.5, "window": 2, "batch": 8,
            "candidates": {
                TRACED: trained([2.0, 1.0, 0.2, 0.2], 0.4, 1.0),
                "torch": trained([2.0, 1.0, 0.3, 0.2], 0.8, 0.1),
            },
        }
    }  # fmt: skip
    found["left_out"] = ["gpt2: the time of --quick was up"]
    return found


class Reader(HTMLParser):
    """Checks that elements are closed, and that nothing is fetched or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        assert all(value and value.startswith("#") for key, value in attrs if key in ("src", "href"))
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(page: str) -> dict[str, int]:
    """How many elements of each kind a page has, which must be well-formed and complete in itself."""
    reader = Reader()
    reader.feed(page)
    assert reader.open == [] and not re.search(r"url\(|@import|https?:", page)
    return reader.count


def test_the_page_has_a_part_for_all_that_was_measured(record: Record) -> None:
    page = report.page(record)
    # Two dot plots; for each network bars of two rates, first steps and memory; three curves.
    count = read(page)
    assert count["svg"] == 2 + 2 * 4 + 3
    assert count["table"] == 2 + 1 + 2 and "a &lt;processor&gt;" in page
    for heading in ("findings", "overview", "networks", "resnet18", "alexnet", "tasks", "growth", "papers", "missing"):
        assert f'id="{heading}"' in page
    assert "differs by 2.0e-01" in page and "gpt2: the time of --quick was up" in page
    assert "<title>resnet18, torch: 3.00 times the traced time</title>" in page


def test_a_record_without_figures_makes_a_page_that_says_so() -> None:
    page = report.page(made())
    assert "Nothing was measured." in page and read(page).get("svg", 0) == 0


def test_findings_say_who_is_ahead_and_where_it_loses(record: Record) -> None:
    said = {found.text: found.tone for found in findings.findings(record)}
    mean = (2 * 2 / 3) ** 0.5
    tones = {
        f"In training, hybridml traced is {mean:.2f} times as fast as the best other library (geometric mean of 2): "
        "ahead on 1, behind on 1.": "bad",
        "In training another library is faster on alexnet (torch.compile, 1.50 times as fast).": "bad",
        "Tracing makes training 2.58 times as fast as eager: 1.67 times on alexnet, 4.00 on resnet18.": "good",
        "Eager training is 0.95 times as fast as PyTorch's eager; more than 10 % slower on resnet18 (0.75).": "bad",
        "Training steps traced take 1.22 times the memory of PyTorch eager, and more of it on alexnet (3.00).": "bad",
        "resnet18: 2 threads in place of 1 make steps faster: hybridml traced 2.00 times and torch 1.50 times.": "",
        "resnet18: the time of a step grows with the power of batch 1.00 (hybridml traced) and 0.50 (torch).": "",
        "digits: hybridml traced is first at a loss of 0.5, after 400 ms of training; torch is last, after 800 ms.": "",
        # 1.9 s of compiling more than eager, 20 ms a step less.
        "Compiling has paid, beside running eagerly, after 95 steps or fewer on each network that tracing makes faster "
        "(most: alexnet).": "",
    }
    assert {text: said.get(text) for text in tones} == tones


def test_medians_apart_within_their_quartiles_are_no_difference() -> None:
    near = made(resnet18={TRACED: entry(0.0105), "torch": entry(0.01)})
    pair = figures.against_best(near)[0]
    assert pair.ratio < 1 and not pair.clear
    texts = [found.text for found in findings.findings(near)]
    assert any("ahead on 0, behind on 0, alike within the quartiles on 1." in text for text in texts)
    assert not any("another library is faster" in text for text in texts)


def test_a_busy_machine_is_told_first(record: Record) -> None:
    assert not findings.findings(record)[0].text.startswith("The machine was busy")
    record["load"] = 4.0
    assert findings.findings(record)[0].text.startswith("The machine was busy (load 4.0 at the start)")


def test_rules_without_figures_say_nothing() -> None:
    assert findings.findings(made()) == []
    assert findings.findings(made(resnet18={EAGER: {"note": "gone"}, TRACED: {"note": "gone"}})) == []


def test_gpus_have_columns_and_findings_of_their_own(record: Record) -> None:
    for who, step in ((TRACED, 0.001), ("torch", 0.002), (EAGER, 0.004)):
        record["networks"]["resnet18"]["candidates"][f"{who} cuda"] = entry(step, device_memory=5 << 20)
    texts = [found.text for found in findings.findings(record)]
    assert any(text.startswith("In training on the GPU, hybridml traced is 2.00 times as fast") for text in texts)
    page = report.page(record)
    assert read(page)["svg"] == 4 + 2 * 4 + 3 and "<td>cuda</td>" in page


def test_csv_and_json_have_every_figure(record: Record, tmp_path: Path) -> None:
    assert report.write(record, tmp_path / "deep" / "study").name == "study.html"
    assert json.loads((tmp_path / "deep" / "study" / "study.json").read_text(encoding="utf-8")) == record
    rows = list(csv.DictReader(io.StringIO((tmp_path / "deep" / "study" / "study.csv").read_text(encoding="utf-8"))))
    picked = [row for row in rows if (row["network"], row["candidate"]) == ("resnet18", "torch")]
    by = {(row["measure"], row["at"]): float(row["value"]) for row in picked}
    assert (
        by["training step", ""] == 0.03 and by["training step by batch", "4"] == 0.018 and by["memory", ""] == 200 << 20
    )
    assert {row["candidate"] for row in rows} == {EAGER, TRACED, "torch", "torch.compile"}  # JAX has no figures


def test_tables_of_papers_have_our_rows_where_the_network_is_the_same(record: Record) -> None:
    speed, steps = papers.TABLES
    assert all(len(cells) == len(table.columns) for table in papers.TABLES for cells in table.rows.values())
    assert dict(papers.ours(speed, record))[TRACED] == [figures.digits(8 / 0.03), "", "", "", "", ""]
    assert dict(papers.ours(steps, record))["torch"] == ["60.0 (batch 8)", "", "", ""]
    record["networks"] = {"gnmt": {**record["networks"]["alexnet"], "shapes": [[8, 24], [8], [8, 24], [8, 24]]}}
    assert dict(papers.ours(speed, record))["torch"][4] == figures.digits(24 * 8 / 0.06)  # tokens a second


def test_numbers_have_three_digits() -> None:
    values = (0, 0.0123, 1.234, 12.34, 123.4, 1234.5, 12345.6)
    assert [figures.digits(v) for v in values] == ["0", "0.0123", "1.23", "12.3", "123", "1,234", "12,346"]
    assert figures.duration(0.0123) == "12.3 ms" and figures.size(3 << 20) == "3.15 MB"
    assert figures.exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)


def test_axes_of_charts_end_above_their_values() -> None:
    for most in (0.003, 0.7, 1.0, 9.9, 64, 1234.0):
        ticks = charts._nice(most)
        assert ticks[0] == 0 and most <= ticks[-1] <= 1.7 * most and len(ticks) <= 6


def test_the_table_of_networks_fits_the_architectures() -> None:
    assert set(QUICK) <= set(NETWORKS)
    for name in known():
        row, about = NETWORKS[name], models.architecture(name)
        assert row.optimizer in OPTIMIZERS
        for size in (row.quick, *(grown(row, row.quick, axis, 2) for axis in row.growth if axis != "length")):
            assert isinstance(size, Size) and size.batch > 0
            if size.options:
                models.get_model(name, tiny=True, **size.options)
        assert len(models.example_batch(name, 1, tiny=True, **row.quick.sizes)) >= about.inputs


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.network)
def test_real_data_have_the_shapes_that_the_network_trains_on(task: Task) -> None:
    batches = task.batches(task.size.batch)
    first, second = next(batches), next(batches)
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    again = next(task.batches(task.size.batch))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))  # the same for each candidate
    if task.network in known():
        example = models.example_batch(task.network, task.size.batch, **task.size.sizes)
        assert [(a.shape, a.dtype) for a in first] == [(a.shape, a.dtype) for a in example]


def test_results_are_compared_with_the_first_candidate() -> None:
    first = {"losses": np.array([2.0, 1.0]), "output": np.ones(3)}
    later = measure.compare(first, {"losses": np.array([2.0, 1.1]), "output": np.ones(3)})
    assert later["difference"] == 0 and later["drift"] == pytest.approx(0.1)
    for wrong in ({"losses": np.array([2.2, 1.0])}, {"output": np.array([1, 1, 1.1])}, {"output": np.ones(2)},
                  {"output": np.array([1, np.nan, 1])}):  # fmt: skip
        assert not measure.compare(first, {**first, **wrong})["difference"] < 0.01


class Here:
    """A worker in this process, whose requests and answers are those of a process."""

    def __init__(self, name: str) -> None:
        self.worker = Worker(name, 1)

    def ask(self, **request: Any) -> dict[str, Any]:
        try:
            return json.loads(json.dumps(self.worker.answer(json.loads(json.dumps(request)))))
        except ImportError as error:
            raise Failure(str(error)) from error

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers in this process, one round, and no pauses."""
    monkeypatch.setattr(measure, "PAUSE", 0.0)
    monkeypatch.setattr(measure.Plan, "start", lambda self, name, cache, threads=None: Here(name))
    # Fewer numbers to normalise make so much of rounding that some processors' products fail the check.
    row = NETWORKS["resnet18"]._replace(quick=Size(4, sizes={"side": 64}, tiny=True))
    monkeypatch.setitem(NETWORKS, "resnet18", row)


@pytest.mark.usefixtures("here")
def test_a_network_is_measured_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "TASKS", ())
    loads = iter([0.2, 3.0])
    monkeypatch.setattr(run, "load", lambda: next(loads))
    monkeypatch.setattr(run, "growths", lambda *_: [("resnet18", "batch", (3,))])
    monkeypatch.setattr(run, "SLOW_TO_START", (EAGER,))  # which growth leaves out
    command = ["study", "--quick", "--networks", "resnet18", "--peers", "", "--rounds", "1", "--seconds", "0.01"]
    command += ["--threads", "1", "--output", str(tmp_path)]
    assert __main__.main(command) == 0
    assert f"report: {tmp_path / 'study.html'}" in capfd.readouterr().out
    record = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    found = record["networks"]["resnet18"]["candidates"]
    assert list(found) == [EAGER, TRACED]
    for entry in found.values():
        assert entry["note"] == "" and entry["step"]["samples"] and entry["infer"]["median"] > 0
        assert entry["difference"] < 1e-4 and entry["cold"] > 0 and entry["warm"] > 0
    assert [row["value"] for row in record["growth"]] == [3] and record["left_out"] == []
    assert all(list(row["median"]) == [TRACED] for row in record["growth"])
    read((tmp_path / "study.html").read_text(encoding="utf-8"))

    monkeypatch.setattr(run, "measure", lambda *_: pytest.fail("it is there"))
    monkeypatch.setattr(run, "measure_growth", lambda *_: pytest.fail("it is there"))
    assert __main__.main([*command, "--resume"]) == 0
    assert json.loads((tmp_path / "study.json").read_text(encoding="utf-8")) == {**record, "load": 3.0}
    again = tmp_path / "again"
    assert __main__.main(["study", "--from", str(tmp_path / "study.json"), "--output", str(again)]) == 0
    assert record["command"] == (
        "python -m hybridml study --quick --networks resnet18 --peers '' --rounds 1 --seconds 0.01 --threads 1"
    )
    for name in report.FILES:
        assert (again / name).read_text(encoding="utf-8") == (tmp_path / name).read_text(encoding="utf-8")
    (again / report.FILES[0]).unlink()
    assert __main__.main(["study", "--from", str(again / "study.json")]) == 0  # beside it, not over build/study
    assert (again / report.FILES[0]).exists()
    with pytest.raises(SystemExit, match="is of --threads 1; "):
        __main__.main([*command, "--resume", "--threads", "2"])
    with pytest.raises(SystemExit, match="other sizes"):
        __main__.main([*(word for word in command if word != "--quick"), "--resume"])


@pytest.mark.usefixtures("here")
def test_a_candidate_trains_on_batches_until_its_target_and_one_that_fails_has_a_note() -> None:
    network, size = NETWORKS["resnet18"]._replace(optimizer="adam"), NETWORKS["resnet18"].quick
    batch = list(models.example_batch("resnet18", 2, tiny=True, side=32))
    plan = measure.Plan([EAGER, "torch"], 1)
    told: list[str] = []
    found = measure.train("resnet18", network, size, [batch] * 9, 10.0, 3, plan, told.append)
    ours, theirs = found["candidates"][EAGER], found["candidates"]["torch"]
    assert ours["reached"] and ours["steps"] == len(ours["losses"]) == 3 and ours["seconds"] > 0 and len(told) == 2
    assert "torch" in theirs["note"] and "losses" not in theirs  # it is not installed where the suite runs
    far = measure.train("resnet18", network, size, [batch] * 2, -1.0, 3, measure.Plan([EAGER], 1), told.append)
    assert not far["candidates"][EAGER]["reached"] and far["candidates"][EAGER]["steps"] == 2


def test_a_worker_answers_line_by_line_and_tells_its_errors(tmp_path: Path) -> None:
    row = NETWORKS["resnet18"]
    with measure.Plan([EAGER], 1).start(EAGER, str(tmp_path)) as process:
        with pytest.raises(Failure, match="AttributeError"):
            process.ask(time="step", seconds=0.01)  # nothing is loaded
        with measure.inputs_of("resnet18", row, Size(2, sizes={"side": 32}, tiny=True)) as inputs:
            entry = inputs.load(process)
        assert entry["note"] == "" and entry["memory"] > 1 << 20 and len(inputs.expected["losses"]) == 3
        assert process.ask(time="infer", seconds=0.001)["samples"]


def test_what_is_not_known_is_told_with_what_there_is() -> None:
    with pytest.raises(SystemExit, match=r"not known: resnet19; .*resnet18"):
        __main__.main(["study", "--networks", "resnet19"])
    with pytest.raises(SystemExit, match=r"not known: caffe; .*torch.compile, jax"):
        __main__.main(["study", "--peers", "caffe"])


def test_what_cannot_be_read_or_run_is_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    for name in ("none.json", "other.json"):
        with pytest.raises(SystemExit, match=f"{name} has no study"):
            __main__.main(["study", "--from", str(tmp_path / name)])
    with pytest.raises(SystemExit, match="there is no interpreter nowhere"):
        __main__.main(["study", "--python", "nowhere"])
    for option in ("--rounds", "--seconds", "--patience", "--threads"):
        with pytest.raises(SystemExit):
            __main__.main(["study", option, "0"])
        assert "0 is not above zero" in capsys.readouterr().err


def test_our_rows_are_explained_where_there_are_any(record: Record) -> None:
    assert report.page(record).count(" Ours: ") == 2  # AlexNet is in both tables
    record["networks"] = {"resnet18": record["networks"]["resnet18"]}
    assert " Ours: " not in report.page(record)


def test_compiling_has_paid_when_the_whole_of_it_has(record: Record) -> None:
    only = record["networks"]["resnet18"]["candidates"]
    only[EAGER]["cold"], only[TRACED]["cold"] = 0.1, 0.17  # 0.07 s more, of which a step saves 0.03
    record["networks"].pop("alexnet")
    said = [found.text for found in findings.first_steps(record)]
    assert "Compiling has paid, beside running eagerly, after 3 steps" in said[-1]


def test_candidates_are_ours_and_peers_on_both_devices() -> None:
    assert {row.library for row in CANDIDATES.values()} == {"hybridml", "torch", "jax"}
    assert [name for name, row in CANDIDATES.items() if row.device == "cuda" and row.library == "hybridml"] == [
        f"{EAGER} cuda", f"{TRACED} cuda",
    ]  # fmt: skip


def test_the_page_of_docs_has_the_record_that_is_kept() -> None:
    kept = json.loads(study_page.RESULTS.read_text(encoding="utf-8"))
    page = study_page.PAGE.read_text(encoding="utf-8")
    assert page.split(study_page.BEGIN)[1].split(study_page.END)[0].strip() == study_page.results(kept)
