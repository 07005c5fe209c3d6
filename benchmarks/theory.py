"""How fast the theory is, as ratios in one run.

    python benchmarks/theory.py

- the correlation map at 1,000 values of ρ, against scipy.integrate.dblquad point by point at the same accuracy;
- design(...) with the search for the safe clip;
- a 200 × 200 phase diagram.
"""

import math
import statistics
import time
from collections.abc import Callable

import numpy as np
from scipy import integrate

from hush.theory import PiecewiseLinear, correlation_map, crelu, design, edge_of_chaos, phase_diagram


def timed(call: Callable[[], object], repeats: int) -> float:
    """The median seconds of a call, after one to warm up."""
    call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def by_dblquad(phi: PiecewiseLinear, rho: float, sigma_w: float, sigma_b: float) -> float:
    """R(ρ) at q* = 1 as the paper writes it: a double integral, split where φ has kinks."""
    spread = math.sqrt(1.0 - rho**2)

    def inner_edges(z1: float) -> list[float]:
        return [(kink - rho * z1) / spread for kink in phi.kinks]

    # One rectangle of smooth pieces: φ(u₁) is 0 below its threshold, and so the integrals start there.
    def integrand(z2: float, z1: float) -> float:
        density = math.exp(-0.5 * (z1 * z1 + z2 * z2)) / (2.0 * math.pi)
        return phi(z1) * phi(rho * z1 + spread * z2) * density

    total = 0.0
    for low, high in ((phi.kinks[0], phi.kinks[1]), (phi.kinks[1], 9.0)):
        for i in (0, 1):
            total += integrate.dblquad(
                integrand,
                low,
                high,
                lambda z1, i=i: max(-9.0, min(9.0, inner_edges(z1)[i])),
                lambda z1, i=i: max(-9.0, min(9.0, inner_edges(z1)[1])) if i == 0 else 9.0,
                epsabs=1e-10,
                epsrel=1e-10,
            )[0]
    return sigma_w**2 * total + sigma_b**2


def main() -> None:
    phi = crelu(1.0364, 1.1743)
    sigma_w, sigma_b = (math.sqrt(v) for v in edge_of_chaos(phi, 1.0))
    rho = np.linspace(-0.99, 0.99, 1000)
    ours = timed(lambda: correlation_map(phi, rho, 1.0, sigma_w, sigma_b), 15)
    values = correlation_map(phi, rho, 1.0, sigma_w, sigma_b)
    chosen = range(0, 1000, 111)
    start = time.perf_counter()
    reference = [by_dblquad(phi, float(rho[i]), sigma_w, sigma_b) for i in chosen]
    theirs = (time.perf_counter() - start) / len(chosen) * 1000
    difference = max(abs(values[i] / r - 1.0) for i, r in zip(chosen, reference, strict=True))
    print(f"R at 1,000 ρ: {1e3 * ours:.1f} ms; dblquad {theirs:.0f} s ({len(chosen)} points, scaled); ", end="")
    print(f"ratio {theirs / ours:,.0f}; largest relative difference {difference:.1e}")

    for name, sparsity in (("crelu", 0.85), ("cst", 0.8), ("crelu", 0.7)):
        seconds = timed(lambda name=name, s=sparsity: design(name, s, width=300, depth=100), 7)
        print(f"design({name!r}, {sparsity}, width=300, depth=100): {seconds:.3f} s")

    seconds = timed(lambda: phase_diagram(phi, np.linspace(0.5, 5.0, 200), np.linspace(0.0, 2.0, 200)), 5)
    print(f"phase diagram, 200 × 200: {seconds:.2f} s")


if __name__ == "__main__":
    main()
