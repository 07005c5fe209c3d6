"""What can be wrong with data."""

__all__ = ["DataError"]


class DataError(ValueError):
    """A data set that is missing, damaged or not what it claims to be; the message is one sentence."""
