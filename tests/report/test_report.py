import base64
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import hush
from hush.report import charts, report
from hush.report.html import Html, page, paragraph, table
from hush.train import Run, load_run
from hush.train.tables import write_table
from tests.report.samples import DEPTH, make_diverged, make_run

NORMS = charts.HeatMap("gradient_norm", "gradient norm", "", logarithmic=True)
LOSS = charts.Curve("losses", "step", "loss", "training loss", "")


class Reader(HTMLParser):
    """Collects the text, the tags and the sources of a page; complains of tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    assert not reader.open
    return reader


def text_of(path: Path) -> str:
    return " ".join(" ".join(read(path).words).split())


def test_one_run_is_self_contained(tmp_path: Path) -> None:
    path = report([make_run(tmp_path)], path=tmp_path / "below" / "report.html")
    reader = read(path)
    # Nothing outside the file: every source is inlined, no script, no stylesheet, no address.
    assert reader.links
    assert all(link.startswith("data:image/") for link in reader.links)
    assert not {"script", "link", "iframe"} & set(reader.tags)
    style = re.search(r"<style>(.*?)</style>", path.read_text(encoding="utf-8"), re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    kinds = [link.split(";")[0] for link in reader.links]
    assert kinds == ["data:image/svg+xml"] * 3 + ["data:image/png"] * 2
    for link in reader.links:
        content = base64.b64decode(link.partition("base64,")[2], validate=True)
        if "svg" in link.split(";")[0]:
            assert ET.fromstring(content).tag.endswith("svg")
        else:
            assert content.startswith(b"\x89PNG")


def test_the_verdict_comes_first(tmp_path: Path) -> None:
    text = text_of(report([make_run(tmp_path)], path=tmp_path / "report.html"))
    verdict = text.index("Trained: test accuracy 0.912, sparsity 0.845, 3 epochs in 12 s.")
    assert verdict < text.index("Curves") < text.index("Layer by layer")


def test_comparison_of_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    make_run(runs)
    make_run(runs, seed=1, finished=False, epochs=2)
    make_diverged(runs)
    text = text_of(report([runs], path=tmp_path / "report.html"))
    assert "3 runs: 1 trained, 1 not finished, 1 diverged. The prediction before training was right for 2 of 2." in text
    assert "Not finished: 2 of 3 epochs are done." in text
    assert "Diverged: the loss is not finite at step 12, layer 3; test accuracy 0.100" in text


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    text = text_of(report([make_run(tmp_path, finished=False, epochs=0)], path=tmp_path / "report.html"))
    assert "Not finished: 0 of 3 epochs are done." in text
    assert "Nothing has been recorded yet." in text
    assert "No layer has been recorded yet." in text


def test_text_from_outside_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert('&\"')</script>"
    run = load_run(make_diverged(tmp_path / "<b>runs"))
    run.directory.rename(run.directory.with_name("<img src=x onerror=1>"))
    path = report([run.directory.with_name("<img src=x onerror=1>")], path=tmp_path / "a.html")
    assert "<b>runs" not in path.read_text(encoding="utf-8")
    assert "<img src=x" not in path.read_text(encoding="utf-8")
    reader = read(report([make_diverged(tmp_path / "other", evil)], path=tmp_path / "b.html"))
    assert "script" not in reader.tags
    assert any(evil[:10] in word for word in reader.words)
    assert paragraph(evil) == "<p>&lt;script&gt;alert(&#x27;&amp;&quot;&#x27;)&lt;/script&gt;</p>"
    assert "<i>" not in table(["<i>"], [["<i>"]])
    assert "<title>&lt;i&gt;</title>" in page("<i>", [Html("<p></p>")], "1")


def test_designs(tmp_path: Path) -> None:
    good, bad = (hush.design("cst", 0.85, v_prime=v, width=w, depth=20) for v, w in ((0.6, 300), (0.95, 50)))
    one = text_of(report(designs=[good], path=tmp_path / "one.html"))
    assert good.verdict in one
    assert "threshold τ 1.43953" in one
    two = text_of(report(designs=[good, bad], path=tmp_path / "two.html"))
    assert "2 designs: 1 should train, 1 will not." in two


def test_heat_maps_hold_the_recorded_figures(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path))
    steps, values = charts.by_step(run, "gradient_norm")
    assert list(steps) == [*range(15), 20, 30]
    np.testing.assert_allclose(values, np.tile(10.0 ** -np.arange(1, DEPTH + 1), (17, 1)))
    figure = charts.draw_heat_map(run, NORMS)
    assert figure is not None
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert (labels[0], labels[-1]) == ("0", "30")
    # Gradients that are all zero have no place on a logarithmic scale.
    run.layers["gradient_norm"][:] = 0.0
    assert charts.draw_heat_map(run, NORMS) is None


def test_variance_map_marks_every_fixed_point() -> None:
    figure = charts.draw_variance_map(hush.design("cst", 0.85, v_prime=0.9))
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    # q* = 1, an unstable point and a second stable one (paper, Figure 4b)
    assert [dot.get_markerfacecolor() == "white" for dot in dots] == [False, True, False]
    assert dots[2].get_xdata()[0] == pytest.approx(5.34, abs=0.01)


def test_bad_values(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to report"):
        report()
    with pytest.raises(ValueError, match="there is no run at"):
        report([tmp_path / "missing"])
    broken = make_run(tmp_path)
    (broken / "layers.csv").write_text("step,layer\n1,2\n")
    with pytest.raises(ValueError, match="layers.csv is damaged"):
        report([broken])
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="the report cannot be written to"):
        report(designs=[hush.design("crelu", 0.85, v_prime=0.5)], path=tmp_path / "file" / "x.html")


def losses_of(root: Path, seed: int, losses: list[float]) -> Run:
    path = make_run(root, seed=seed)
    write_table(path, "losses", [[step, loss] for step, loss in enumerate(losses)])
    return load_run(path)


def test_losses_that_explode_do_not_hide_those_that_do_not(tmp_path: Path) -> None:
    calm = losses_of(tmp_path, 0, [2.3, 2.0, 1.5, 1.0, 0.6, 0.4])
    wild = losses_of(tmp_path, 1, [2.9, 2.7e36, float("nan")])
    figure = charts.draw_curve([calm, wild], ["calm", "wild"], LOSS)
    assert figure is not None
    (panel,) = figure.axes
    assert panel.get_yscale() == "log"
    low, high = panel.get_ylim()
    assert low < 0.4
    assert 1e3 < high < 1e6  # the calm curve keeps a sixth of the height or more
    assert [line.get_label() for line in panel.lines] == ["calm", "wild (up to 3e+36)"]


@pytest.mark.parametrize("losses", [[2.3, 1.0, 0.5], [2.3, 0.1, 0.004], [0.0, 0.0], [-3.0, 2.0], [40.0, 2.0, 0.1]])
def test_losses_that_do_not_explode_stay_on_a_linear_axis(tmp_path: Path, losses: list[float]) -> None:
    figure = charts.draw_curve([losses_of(tmp_path, 0, losses)], ["run"], LOSS)
    assert figure is not None
    assert figure.axes[0].get_yscale() == "linear"


def test_a_report_tells_when_and_where_its_runs_were_trained(tmp_path: Path) -> None:
    directory = make_run(tmp_path)
    words = "The runs do not record when and where; their results were last written on"
    assert words in text_of(report([directory], path=tmp_path / "report.html"))
    values = json.loads((directory / "result.json").read_text())
    stamp = {"finished": "2021-03-04T10:00:00+00:00", "processor": "Some Xeon", "cores": 2, "isa": "avx512"}
    (directory / "result.json").write_text(json.dumps(values | {"provenance": stamp}))
    text = text_of(report([directory], path=tmp_path / "report.html"))
    assert "Trained on 2021-03-04; Some Xeon, 2 cores, avx512." in text
