"""The explorer: a page in the browser where the theory is moved by sliders.

What is computed and drawn (`settings`, `view`, `verdict`, `snippets`, `presets`, `address`, `charts`, `drawing`)
needs no Streamlit; `page` is the Streamlit script and `server` starts it.
"""

from hush.app.address import from_address, to_address
from hush.app.presets import PRESETS, Preset
from hush.app.settings import Settings
from hush.app.view import View, compute_view

__all__ = ["PRESETS", "Preset", "Settings", "View", "compute_view", "from_address", "to_address"]
