"""What `hush.init_` gives at width 300, depth 100, over many seeds, beside what the theory says.

    python benchmarks/initialisation.py                    100 seeds, about 20 minutes on one core
    python benchmarks/initialisation.py --seeds 20 --only mlp --activation crelu

For each design, kind of weights and network, over seeds × 16 digits:

    sparsity      mean over layers, inputs and seeds, and how far it is from s
    inside 90/99  share of (seed, input) pairs whose q stays inside the simultaneous 90 % or 99 % band at every layer
    gain 10/50/90 quantiles of log10 |δ_1|²/|δ_L|², measured and by theory
    leaves        share of networks of which the diagnosis says that q leaves its band (over 1 input in 5, 99 % band)
"""

import argparse
import time

import numpy as np
import torch
from _digits import digits

import hush
from hush.diagnose.arguments import read_inputs
from hush.diagnose.measure import measure_model
from hush.theory import InputNorms, bands, finite_width

DESIGNS = (("crelu", 0.85, {}), ("cst", 0.8, {}), ("shifted_relu", 0.7, {}), ("soft_threshold", 0.5, {}))
WIDTH, DEPTH, INPUTS = 300, 100, 16


def inputs(network: str, variance: float) -> torch.Tensor:
    """16 digits; for the CNN as sequences of 8 channels, 8 positions."""
    x, _ = digits(INPUTS, variance)
    return x if network == "mlp" else x.view(INPUTS, 8, 8)


def row(name: str, sparsity: float, choice: dict, network: str, weights: str, seeds: int) -> str:
    design = hush.design(name, sparsity, width=WIDTH, depth=DEPTH, **choice)
    x = inputs(network, design.input_variance)
    squares = x.double().flatten(1).square().mean(1).numpy()
    positions = 1 if network == "mlp" else 8
    start = {"positions": positions, "q_start": float(squares.mean()), "norms": InputNorms.from_samples(squares)}
    sigmas = (design.sigma_w, design.sigma_b)
    theory = finite_width(design.phi(), *sigmas, WIDTH, DEPTH, **start)
    edges = {c: bands(design.phi(), *sigmas, WIDTH, DEPTH, coverage=c, **start).q for c in (0.9, 0.99)}
    shares, gains, inside, leaves = [], [], {0.9: [], 0.99: []}, []
    model = hush.nn.mlp(64, 10, design) if network == "mlp" else hush.nn.cnn(8, 10, design, dims=1)
    for seed in range(seeds):
        hush.init_(model, design, weights=weights, generator=torch.Generator().manual_seed(seed))
        readings = measure_model(model, read_inputs(model, x), None, None, INPUTS).readings
        shares.append(np.mean([reading.sparsity for reading in readings]))
        q = np.stack([torch.cat(reading.q).numpy() for reading in readings])
        for coverage, band in edges.items():
            within = (q >= np.array(band.low)[:, None]) & (q <= np.array(band.high)[:, None])
            inside[coverage].append(within.all(0).mean())
            if coverage == 0.99:
                leaves.append(bool((within.mean(1) < 0.8).any()))
        first, last = readings[0].squared_gradients[0], readings[-1].squared_gradients[0]
        gains.append((first.log10() - last.log10()).numpy())
    measured = np.quantile(np.concatenate(gains), (0.1, 0.5, 0.9))
    expected = [theory.gain_log10[level] for level in (0.1, 0.5, 0.9)]
    return (
        f"{name:<14} {sparsity:<4g} {network:<4} {weights:<16} {np.mean(shares):.4f}  "
        f"{np.mean(shares) - sparsity:+.4f}  {np.mean(inside[0.9]):>4.0%} {np.mean(inside[0.99]):>4.0%}  "
        f"{' / '.join(f'{v:5.2f}' for v in measured)}   {' / '.join(f'{v:5.2f}' for v in expected)}  "
        f"{np.mean(leaves):>5.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--only", choices=("mlp", "cnn"), help="one kind of network")
    parser.add_argument("--activation", choices=[name for name, *_ in DESIGNS], help="one activation")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"width {WIDTH}, depth {DEPTH}, {options.seeds} seeds × {INPUTS} digits, float32, circular padding")
    print(
        f"{'activation':<14} {'s':<4} {'net':<4} {'weights':<16} {'sparsity':<7} {'off by':>8}  in90 in99  "
        f"{'gain 10/50/90 measured':<24} {'theory':<22} leaves"
    )
    begin = time.perf_counter()
    for name, sparsity, choice in DESIGNS:
        if options.activation not in (None, name):
            continue
        for network in ("mlp", "cnn") if options.only is None else (options.only,):
            kinds = ("gaussian", "orthogonal") if design_is_clipped(name) else ("gaussian",)
            for weights in (*kinds, "delta_orthogonal") if network == "cnn" and len(kinds) > 1 else kinds:
                print(row(name, sparsity, choice, network, weights, options.seeds), flush=True)
    print(f"{time.perf_counter() - begin:.0f} s")


def design_is_clipped(name: str) -> bool:
    """Orthogonal weights are looked at for the designs that are meant to be used."""
    return name in ("crelu", "cst")


if __name__ == "__main__":
    main()
