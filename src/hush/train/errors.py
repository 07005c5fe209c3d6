"""What can keep a run from its end. None of it needs Lightning: whoever catches it may not have it."""

__all__ = ["Interrupted", "MissingExtraError", "RunBusyError", "RunError"]


class MissingExtraError(ImportError):
    """A package of the extra `train` is not installed; the message says how to get it."""


class RunError(ValueError):
    """A run that could not be written or gone on with; what was finished before is intact."""


class RunBusyError(RunError):
    """Another process is training this very run."""


class Interrupted(Exception):  # noqa: N818 - asked for by the user
    """Ctrl-C: the run lies as its last whole epoch left it, and the same call goes on from there."""
