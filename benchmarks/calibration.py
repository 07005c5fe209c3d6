"""The whole comparison of the finite-width rule with the paper's tables, as Markdown.

python benchmarks/calibration.py
"""

from hush.reproduce.calibration import count_right, judge_tables


def main() -> None:
    judged = judge_tables()
    print(
        "| depth | activation | s | V′ | m | paper: accuracy | sparsity | outcome | odds to explode | rule | agrees |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for j in judged:
        row, odds = j.row, j.design.odds
        assert odds is not None
        clip = "–" if j.design.clip is None else f"{j.design.clip:.2f}"
        agrees = {True: "yes", False: "**no**", None: "left aside"}[j.agrees]
        print(
            f"| {row.depth} | {row.activation} | {row.sparsity:g} | {row.v_prime:g} | {clip} "
            f"| {row.accuracy_mean:.2f} ± {row.accuracy_std:.2f} | {row.sparsity_mean:.2f} | {row.outcome.value} "
            f"| {odds.explode:.3f} | {'trains' if j.design.trains else 'fails'} | {agrees} |"
        )
    right, clear = count_right(judged)
    print(
        f"\n{right} of {clear} rows with a clear outcome called right ({right / clear:.1%}). "
        f"In-sample: the two bounds of the rule were chosen on these very rows."
    )


if __name__ == "__main__":
    main()
