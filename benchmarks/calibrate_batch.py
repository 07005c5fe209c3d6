"""What `calibrate=batch` does to the odds at initialisation, and to training on the digits.

    python benchmarks/calibrate_batch.py

Odds: 100 layers × 300 units, how often the gradient grows more than thirtyfold (over seeds × 16 digits), the spread of
the log10 gain, and of q in the last layer. Training: 30 layers × 128, SGD without momentum, lr 1e-2, batch 32, test
accuracy and sparsity after so many epochs.
"""

import argparse

import numpy as np
import torch
from _digits import digits
from torch.nn import functional as F  # noqa: N812

import hush
from hush.diagnose.arguments import read_inputs
from hush.diagnose.measure import measure_model
from hush.theory.training_rule import EXPLODING_GAIN_LOG10

DESIGNS = (("crelu", 0.85, {"v_prime": 0.7}), ("cst", 0.8, {"v_prime": 0.9}), ("shifted_relu", 0.7, {}))


def odds(seeds: int) -> None:
    print("activation      s     V′    calibrated  explode  log10 gain 10/50/90 %     q of the last layer 10/50/90 %")
    for name, sparsity, choice in DESIGNS:
        design = hush.design(name, sparsity, width=300, depth=100, **choice)
        model = hush.nn.mlp(64, 10, design)
        x = digits(272, design.input_variance)[0]
        for calibrate in (None, x[16:]):
            gains, last = [], []
            for seed in range(seeds):
                generator = torch.Generator().manual_seed(seed)
                hush.init_(model, design, calibrate=calibrate, generator=generator)
                readings = measure_model(model, read_inputs(model, x[:16]), None, None, 16).readings
                squares = torch.stack([reading.squared_gradients[0] for reading in readings]).log10()
                gains.append((squares - squares[-1]).numpy())
                last.append(readings[-1].q[0].numpy())
            gain = np.concatenate(gains, axis=1)
            quantiles = [np.quantile(v, (0.1, 0.5, 0.9)) for v in (gain[0], np.concatenate(last))]
            gain_text, q_text = (" / ".join(f"{v:7.3g}" for v in row) for row in quantiles)
            print(
                f"{name:<14}  {sparsity:<4g}  {design.v_prime:.2f}  {'no' if calibrate is None else 'yes':<10}  "
                f"{(gain.max(0) > EXPLODING_GAIN_LOG10).mean():>7.0%}  {gain_text}   {q_text}",
                flush=True,
            )


def training(seeds: int, epochs: int) -> None:
    print(f"\n30 × 128 on the digits, {epochs} epochs, {seeds} seeds: test accuracy, sparsity")
    x, y = digits(1797)
    for name, sparsity, choice in DESIGNS[:2]:
        design = hush.design(name, sparsity, **choice)
        for calibrate in (None, x[:256]):
            results = [train(design, x, y, calibrate, seed, epochs) for seed in range(seeds)]
            text = "  ".join(f"{accuracy:.2f}, {share:.2f}" for accuracy, share in results)
            print(f"{name:<8} {sparsity:<4g}  {'not calibrated' if calibrate is None else 'calibrated':<15}  {text}")


def train(design, x, y, calibrate, seed: int, epochs: int) -> tuple[float, float]:
    model = hush.nn.mlp(64, 10, design, width=128, depth=30)
    generator = torch.Generator().manual_seed(seed)
    hush.init_(model, design, calibrate=calibrate, generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for batch in torch.randperm(1500, generator=generator).split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = float((model(x[1500:]).argmax(1) == y[1500:]).double().mean())
    return accuracy, hush.sparsity(model, x[1500:]).mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--training-seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    odds(options.seeds)
    training(options.training_seeds, options.epochs)


if __name__ == "__main__":
    main()
