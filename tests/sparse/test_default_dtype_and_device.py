"""torch's default dtype and device, fake and meta tensors: none of them reaches the engine's memory.

The cases stand in `default_dtype_cases`; `make sanitize` runs them under AddressSanitizer, too.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import default_dtype_cases

SCRIPT = Path(default_dtype_cases.__file__)


@pytest.fixture(scope="module")
def outcomes():
    flags = ["-S"] if sys.flags.no_site else []
    # Threads that wait asleep: two that spin on a busy machine take a hundred times as long.
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [sys.executable, *flags, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", list(default_dtype_cases.CASES))
def test_case(case, outcomes):
    status, said = outcomes[case]
    assert status == 0, f"exit status {status}\n{said}"
