"""What the page shows for any state of its controls."""

from hush.app.settings import Settings
from hush.app.stream_view import StreamView, compute_stream_view
from hush.app.view import View, compute_view

__all__ = ["view_of"]


def view_of(settings: Settings) -> View | StreamView:
    """That of the chain, or of the blocks on a residual stream.

    Raises:
        ValueError: if there is no such design.
    """
    return compute_stream_view(settings) if settings.has_stream else compute_view(settings)
