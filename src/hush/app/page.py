"""The explorer's page: a Streamlit script. Controls to the left, the verdict above all, the pictures below it."""

import gc
from dataclasses import asdict

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from hush.app.address import from_address, to_address
from hush.app.controls import draw_controls, set_controls
from hush.app.pictures import about, numbers_and_pictures
from hush.app.settings import Settings
from hush.app.snippets import code, command
from hush.app.stream_view import StreamView
from hush.app.style import STYLE
from hush.app.view import View
from hush.app.view_of import view_of


def main() -> None:
    """Draw the page for the address, or for what the controls have been moved to since."""
    st.set_page_config("hush explorer", layout="wide")
    st.html(f"<style>{STYLE}</style>")
    _settle()
    _restore()
    title = st.empty()
    top, notice = st.container(key="verdict"), st.container()
    left, right = st.columns([1, 3], gap="medium")
    with left, st.container(key="controls"):
        settings = draw_controls()
    state = st.session_state
    if settings != state.shown:
        state.shown, state.complaints, state.moved = settings, [], True
    title.html(about(settings))
    _show(settings, top, notice, right)
    # The address is written last, so that the pictures do not wait for it, and only once a control has been moved.
    if state.pop("moved", False):
        _write_address(settings)


def _show(settings: Settings, top: DeltaGenerator, notice: DeltaGenerator, right: DeltaGenerator) -> None:
    if complaints := st.session_state.complaints:
        lines = ["Not all of this address can be read:", "", *(f"- {_plain(complaint)}" for complaint in complaints)]
        notice.warning("\n".join(lines))
    try:
        view = view_of(settings)
    except ValueError as error:
        top.error(f"## There is no such design.\n{_plain(str(error))}")
        return
    with top:
        box = st.success if view.verdict.trains else st.error
        box(f"## {view.verdict.headline}\n{_plain(view.verdict.sentence)}")
    with right:
        # Drawn last, so that the browser is done with the rest by then.
        above = st.container()
        _take_away(view)
        # One element for all of it: Streamlit takes its time for each. st.html would take the drawings out.
        above.markdown(numbers_and_pictures(view), unsafe_allow_html=True)


@st.cache_resource(show_spinner=False)  # type: ignore[untyped-decorator,unused-ignore]
def _settle() -> None:
    """Once: after each redraw Streamlit collects garbage, and until it has looked at every object the pictures wait.

    What is there now, the imported modules, stays; it need not be looked at again.
    """
    gc.freeze()


def _restore() -> None:
    """Set the controls to the address where the reader went to it.

    A control that is moved while the page is being redrawn comes with an address that is one redraw behind: the control
    is right then.
    """
    state = st.session_state
    given = {name: st.query_params.get_all(name) for name in st.query_params}
    before = asdict(state.kept) if "kept" in state else {}
    moved = any(state.get(name, value) != value for name, value in before.items())
    if state.get("address") != given and not moved:
        settings, state.complaints = from_address(given)
        state.address = given
        set_controls(settings)
        state.shown = settings


def _write_address(settings: Settings) -> None:
    address = to_address(settings)
    st.query_params.from_dict(address)
    st.session_state.address = {name: [value] for name, value in address.items()}


def _take_away(view: View | StreamView) -> None:
    st.markdown("**The same design**")
    st.code(code(view), language="python")
    if not view.settings.on_edge:
        st.caption("The command line designs on the Edge of Chaos only:")
    st.code(command(view), language="bash")


def _plain(text: str) -> str:
    """Text as it is: an address must not be able to put Markdown, let alone a picture, onto the page."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]()<>#+-!|$~:" else c for c in text)


if __name__ == "__main__":
    main()
