"""The explorer: a page in the browser where the theory is moved by sliders.

What is computed and drawn (`settings`, `view`, `stream_view`, `verdict`, `snippets`, `presets`, `address`, `charts`,
`stream_charts`, `drawing`, `pictures`) needs no Streamlit; `page` is the Streamlit script, `controls` its sliders, and
`server` starts it.
"""

from hush.app.address import from_address, to_address
from hush.app.presets import PRESETS, Preset
from hush.app.settings import Settings
from hush.app.stream_view import StreamView, compute_stream_view
from hush.app.view import View, compute_view

__all__ = [
    "PRESETS",
    "Preset",
    "Settings",
    "StreamView",
    "View",
    "compute_stream_view",
    "compute_view",
    "from_address",
    "to_address",
]
