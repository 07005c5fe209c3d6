"""`hush bench`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hush._extras import how_to_install

if TYPE_CHECKING:
    from hush.bench import Measurement

bench_app = typer.Typer(
    help="Time the sparse engine beside other runtimes, as ratios.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    epilog="""
**Examples**

`hush bench inference --batch 1 --batch 128 --sparsity 0.85 --sparsity 0.9`

`hush bench training --batch 16 --batch 64 --batch 128 --batch 512`

`hush bench training --arch residual --depth 60 --sparsity 0.95 --batch 128`

`hush bench training --arch conv --width 64 --batch 64 --sparsity 0.85 --sparsity 0.95`

`hush bench training --arch feedforward --width 512 --batch 1024 --sparsity 0.9 --sparsity 0.95`

`hush bench training --arch gpt --width 192 --batch 24 --sparsity 0.95`

`hush bench inference --masks trained --data FOLDER_WITH_MNIST`

`hush bench layer --width 1024 --sparsity 0.5 --sparsity 0.7 --sparsity 0.9 --plot speed.png`
""",
)

Sparsity = Annotated[list[float], typer.Option(help="The share of silent units; may be repeated.")]
Width = Annotated[list[int], typer.Option(help="Units per layer; may be repeated.")]
Depth = Annotated[
    int | None,
    typer.Option(help="Layers; by default 100 at width 300, fewer where they are wider; of gpt 4, of feedforward 1."),
]
Batch = Annotated[list[int], typer.Option(help="Samples at once; may be repeated.")]
Threads = Annotated[int, typer.Option(help="Threads for every peer.")]
Repeats = Annotated[int, typer.Option(help="Turns that every peer gets.")]
Peers = Annotated[list[str] | None, typer.Option("--peer", help="Only this peer; may be repeated.")]
Always = Annotated[bool, typer.Option("--always", help="Sparse even where the crossover says dense.")]
Masks = Annotated[str, typer.Option(help="random: drawn weights; trained: a network trained on digits or --data.")]
Data = Annotated[Path | None, typer.Option(help="Folder with the MNIST files, for --masks trained.")]
Arch = Annotated[
    str,
    typer.Option(
        help="chain: CReLU → Linear; residual: x + β(W CReLU(norm(x)) + b); feedforward: Linear → CReLU → Linear "
        "behind a norm, 4 × width units between; gated: with CReLU(gate) ∘ up; gpt: a byte transformer; "
        "conv: CReLU → Conv2d; resnet: a CIFAR ResNet."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON rows.")]
Plot = Annotated[Path | None, typer.Option(help="Draw speedups over sparsity and batch, and the roofline, into this.")]


def _network_command(work: str, batches: list[int], turns: int, help_text: str) -> None:
    """`hush bench WORK`: inference and training take the same options and differ in two defaults."""

    @bench_app.command(work, help=help_text)
    def command(
        sparsity: Sparsity = [0.85, 0.9],  # noqa: B006  (typer reads it, nobody changes it)
        width: Width = [300],  # noqa: B006
        depth: Depth = None,
        batch: Batch = batches,
        threads: Threads = 2,
        repeats: Repeats = turns,
        peer: Peers = None,
        masks: Masks = "random",
        data: Data = None,
        always: Always = False,
        arch: Arch = "chain",
        as_json: AsJson = False,
        plot: Plot = None,
    ) -> None:
        options = {"depth": depth, "threads": threads, "repeats": repeats, "adaptive": not always, "arch": arch}
        _run(work, sparsity, width, batch, peer, masks, data, as_json, plot, options)


_network_command(
    "inference", [1, 128], 30, "A forward pass without gradients, beside torch, ONNX Runtime and OpenVINO."
)
_network_command("training", [16, 64, 128, 512], 15, "A full SGD step: forward, backward and update, beside torch.")


@bench_app.command("layer")
def layer_command(
    sparsity: Sparsity = [0.5, 0.7, 0.8, 0.85, 0.9, 0.95],  # noqa: B006
    width: Width = [1024],  # noqa: B006
    batch: Batch = [128],  # noqa: B006
    threads: Threads = 2,
    repeats: Repeats = 30,
    peer: Peers = None,
    always: Always = False,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """One activation → Linear pair, a full SGD step of it."""
    options = {"threads": threads, "repeats": repeats, "adaptive": not always}
    _run("layer", sparsity, width, batch, peer, "random", None, as_json, plot, options)


@bench_app.command("crossover")
def crossover_command(
    width: Width = [300],  # noqa: B006
    again: Annotated[bool, typer.Option("--again", help="Measure again what is known already.")] = False,
) -> None:
    """Up to which density of active units the engine pays on this machine; measured once and kept."""
    for value in width:
        if value < 1:
            raise ValueError(f"width must be at least 1, got {value}.")
    from hush.sparse import convolution_crossover, crossover

    if again:
        crossover.forget()
        convolution_crossover.forget()
    for turns in (False, True):
        crossover.ensure_measured(width, turns)
    typer.echo("\n".join(filter(None, (crossover.describe(), convolution_crossover.describe()))))


def _run(
    work: str,
    sparsities: list[float],
    widths: list[int],
    batches: list[int],
    peers: list[str] | None,
    masks: str,
    data: Path | None,
    as_json: bool,
    plot: Path | None,
    options: dict[str, Any],
) -> None:
    if masks not in ("random", "trained"):
        raise ValueError(f"--masks is random or trained, got {masks!r}.")
    arch = options.get("arch", "chain")
    if arch != "chain" and masks != "random":
        raise ValueError(f"--arch {arch} goes with --masks random.")
    if data is not None and masks != "trained":
        raise ValueError("--data goes with --masks trained.")
    if data is not None and not data.is_dir():
        raise ValueError(f"--data is {str(data)!r}, which is no folder; give the one with the MNIST files.")
    if plot is not None and not plot.absolute().parent.is_dir():
        raise ValueError(f"--plot is {str(plot)!r}, whose folder does not exist.")
    from hush import bench
    from hush.bench.random_networks import ARCHES
    from hush.bench.readable import header_lines, line_of, setting_lines
    from hush.sparse import keep_freed_memory

    if arch not in ARCHES:
        raise ValueError(f"--arch is {', '.join(ARCHES[:-1])} or {ARCHES[-1]}, got {arch!r}.")

    kept = keep_freed_memory()  # as `hush train` does
    threads, repeats = options["threads"], options["repeats"]
    bench.check_arguments(work, widths, options.get("depth"), batches, sparsities, threads, repeats, peers)
    for line in header_lines(work, bench.machine(threads), threads, repeats, sparsities, arch, kept):
        _say(line)
    if peers is not None:
        options["peers"] = peers
    found: list[Measurement] = []
    absent: set[str] = set()
    for width in widths:
        for s in sparsities:
            given = _trained(s, width, options["depth"], data) if masks == "trained" else {}
            for batch in batches:
                more, missing = getattr(bench, work)(width=width, sparsity=s, batch=batch, **options, **given)
                found += more
                absent |= set(missing)
                for line in (*setting_lines(more[0]), *map(line_of, more), ""):
                    _say(line)
    if absent:
        _say(f"Not installed, and so not timed: {', '.join(sorted(absent))} ({how_to_install('bench')}).")
    if as_json:
        typer.echo(json.dumps([measurement.to_dict() for measurement in found], indent=1))
    if plot is not None:
        from hush.bench.speedup_plot import plot_speedup

        plot_speedup(found, plot, bench.measure_roofline(threads))


def _trained(sparsity: float, width: int, depth: int | None, data: Path | None) -> dict[str, Any]:
    from hush import bench
    from hush.data import load

    split = load("digits" if data is None else "mnist", directory=data).train
    images, labels = split.images, split.labels
    epochs = 20 if data is None else 2
    model, accuracy = bench.train_network(images, labels, sparsity, width, depth or 30, epochs)
    _say(f"trained {epochs} epochs, {accuracy:.2f} of the last thousand right")
    return {"model": model, "samples": images}


def _say(text: str) -> None:
    """To stderr, so that --json leaves nothing but JSON on stdout."""
    print(text, file=sys.stderr, flush=True)
