"""How to install what is missing: from a checkout, and by the name under which hush is distributed.

The package is imported as `hush`, but that name belongs to another project on the package index.
"""

__all__ = ["DISTRIBUTION", "how_to_install"]

DISTRIBUTION = "hush-sparse"


def how_to_install(extra: str) -> str:
    """The two commands that install an extra, for the end of a sentence."""
    return f"pip install -e '.[{extra}]' in a checkout, or pip install '{DISTRIBUTION}[{extra}]'"
