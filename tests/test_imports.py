"""What an import costs: the theory never loads torch."""

import subprocess
import sys


def test_the_theory_never_loads_torch() -> None:
    code = "import sys, hush.theory; hush.theory.design('crelu', 0.85, clip=1.0); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
