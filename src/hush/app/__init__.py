"""The explorer: a page in the browser where the theory is moved by sliders.

What is computed and drawn (`settings`, `outlook`, `verdict`, `snippets`, `presets`, `address`, `charts`, `drawing`)
needs no Streamlit; `page` is the Streamlit script and `server` starts it.
"""

from hush.app.address import from_address, to_address
from hush.app.outlook import Outlook, look
from hush.app.presets import PRESETS, Preset
from hush.app.settings import Settings

__all__ = ["PRESETS", "Outlook", "Preset", "Settings", "from_address", "look", "to_address"]
