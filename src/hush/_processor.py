"""The processor's name."""

import functools
import platform

__all__ = ["processor_name"]


@functools.cache
def processor_name() -> str:
    """The model's name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux: what Python knows has to do
    return platform.processor() or platform.machine() or "unknown processor"
