"""The explorer's page: a Streamlit script. Controls to the left, the verdict above all, the pictures below it."""

import gc
from collections.abc import Callable
from dataclasses import asdict
from html import escape
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from hush.app import charts
from hush.app.address import from_address, to_address
from hush.app.drawing import STYLE
from hush.app.outlook import Outlook, look
from hush.app.presets import PRESETS
from hush.app.settings import WHOLE, Clip, Settings, Sigmas, span
from hush.app.snippets import code, command
from hush.theory import activation_names, entry_of

_CLIPS = {Clip.SAFE: "the largest safe one", Clip.HEIGHT: "m", Clip.SLOPE: "V′(q*)"}
_SIGMAS = {Sigmas.EDGE: "on the Edge of Chaos", Sigmas.FACTOR: "σ_w scaled", Sigmas.FREE: "both free"}
_FIELDS = tuple(Settings.__dataclass_fields__)

# The verdict stays in sight while one scrolls through controls and pictures; nothing is wider than the window. Nothing
# fades: a redraw is over before a fade would be, and without a graphics processor fading is much of its work.
_STYLE = """
.block-container {padding-top: 1rem; padding-bottom: 2rem; max-width: 1500px;}
:has(> .st-key-verdict) {position: sticky; top: 0; z-index: 100; background: var(--st-background-color);}
.st-key-verdict h2 {padding: 0; font-size: 1.6rem;}
.numbers {display: flex; flex-wrap: wrap; gap: 0.5rem 1.3rem; margin: 0 0 1rem;}
.numbers dt {font-size: 0.875rem; font-weight: 400;}
.numbers dd {font-size: 1.15rem; margin: 0;}
header[data-testid="stHeader"] {height: 0; min-height: 0;}
.stApp * {transition: none !important;}
[data-stale="true"] {opacity: 1 !important;}
.pictures {display: grid; gap: 1.2rem 1.5rem; margin-bottom: 1rem; grid-template-columns: minmax(0, 1fr);}
.pictures figure {margin: 0;}
.pictures figcaption {font-size: 0.875rem; opacity: 0.7;}
@media (min-width: 900px) {
  .pictures {grid-template-columns: repeat(6, minmax(0, 1fr));}
  .pictures figure {grid-column: span 3;}
  .pictures figure:nth-child(5):nth-last-child(3), .pictures figure:nth-child(5):nth-last-child(3) ~ figure {
    grid-column: span 2;
  }
}
@media (max-width: 640px) {
  .st-key-verdict h2 {font-size: 1.2rem;}
  .st-key-verdict p {font-size: 0.85rem;}
  .block-container {padding-left: 0.8rem; padding-right: 0.8rem;}
}
"""


def main() -> None:
    """Draw the page for the address, or for what the controls have been moved to since."""
    st.set_page_config("hush explorer", layout="wide")
    st.html(f"<style>{_STYLE}{STYLE}</style>")
    _settle()
    _restore()
    top, notice = st.container(key="verdict"), st.container()
    left, right = st.columns([1, 3], gap="medium")
    with left:
        settings = _controls()
    state = st.session_state
    if settings != state.shown:
        state.shown, state.complaints, state.moved = settings, [], True
    _show(settings, top, notice, right)
    # Last, for the pictures wait for nothing then. Until a control has been moved the address stays as it was given.
    if state.pop("moved", False):
        _write_address(settings)


def _show(settings: Settings, top: DeltaGenerator, notice: DeltaGenerator, right: DeltaGenerator) -> None:
    if complaints := st.session_state.complaints:
        lines = ["Not all of this address can be read:", "", *(f"- {_plain(complaint)}" for complaint in complaints)]
        notice.warning("\n".join(lines))
    try:
        outlook = look(settings)
    except ValueError as error:
        top.error(f"## There is no such design.\n{_plain(str(error))}")
        return
    with top:
        box = st.success if outlook.verdict.trains else st.error
        box(f"## {outlook.verdict.headline}\n{_plain(outlook.verdict.sentence)}")
    with right:
        # Drawn last, so that the browser is done with the rest by then.
        above = st.container()
        _take_away(outlook)
        # One element for all of it: Streamlit takes its time for each. st.html would take the drawings out.
        above.markdown(_numbers(outlook) + _pictures(outlook), unsafe_allow_html=True)


@st.cache_resource(show_spinner=False)
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
        _set(settings)
        state.shown = settings


def _set(settings: Settings) -> None:
    for name in _FIELDS:
        st.session_state[name] = getattr(settings, name)


def _write_address(settings: Settings) -> None:
    address = to_address(settings)
    st.query_params.from_dict(address)
    st.session_state.address = {name: [value] for name, value in address.items()}


def _controls() -> Settings:
    """All the widgets; returns what they stand at."""
    state = st.session_state
    for name in _FIELDS:
        # Streamlit forgets the value of a widget that is not drawn. One that is drawn must not be set: a key pressed
        # while the page is being redrawn would be lost.
        if name not in state:
            state[name] = getattr(state.kept, name)
    _preset()
    names = activation_names()
    st.selectbox("Activation", names, key="activation", format_func=lambda name: entry_of(name).title)
    _slider("sparsity", "Sparsity s", "%.4g", "The share of exact zeros at q*.")
    # In a box each, so that what comes after them keeps its place on the page when they grow or shrink.
    with st.container():
        if entry_of(state.activation).clipped:
            st.radio("Clip by", list(Clip), key="clip_by", format_func=_CLIPS.__getitem__, horizontal=True)
            if state.clip_by is Clip.HEIGHT:
                _slider("clip", "Clip m", "%.4g")
            elif state.clip_by is Clip.SLOPE:
                _slider("v_prime", "V′(q*)", "%.4g", "The slope of the variance map; it grows with m.")
    _slider("width", "Width N", "%d")
    _slider("depth", "Depth L", "%d")
    with st.container():
        st.radio(
            "σ_w and σ_b", list(Sigmas), key="sigmas", format_func=_SIGMAS.__getitem__, horizontal=True, on_change=_free
        )
        if state.sigmas is Sigmas.FACTOR:
            _slider("sigma_w_factor", "σ_w as a multiple of that on the Edge of Chaos", "%.4g")
        elif state.sigmas is Sigmas.FREE:
            _slider("sigma_w", "σ_w", "%.4g")
            _slider("sigma_b", "σ_b", "%.4g")
    with st.expander("Scale and cobweb"):
        _slider("q_star", "q*", "%.4g", "The variance the network is designed for: a unit, for scale is free.")
        _slider("start", "Cobweb starts at q/q*", "%.4g", "1.9 is the norm of the brightest hundredth of images.")
    state.kept = Settings(**{name: state[name] for name in _FIELDS})
    return state.kept


def _slider(name: str, label: str, form: str, explanation: str | None = None) -> None:
    state = st.session_state
    allowed = span(name, state.activation, state.q_star)
    kind: Callable[[float], Any] = int if name in WHOLE else float
    inside = kind(allowed.nearest(state[name]))
    if state[name] != inside:  # another activation or q* may have left it outside
        state[name] = inside
    bounds = (kind(allowed.low), kind(allowed.high))
    st.slider(label, *bounds, step=kind(allowed.step), format=form, key=name, help=explanation)


def _preset() -> None:
    """The figures of the paper; the choice is forgotten as soon as a control leaves it."""
    state = st.session_state
    chosen = state.get("preset")
    if chosen is not None and any(state[name] != getattr(PRESETS[chosen].settings, name) for name in _FIELDS):
        state.preset = chosen = None
    st.selectbox(
        "A figure of the paper",
        range(len(PRESETS)),
        index=None,
        key="preset",
        format_func=lambda i: PRESETS[i].label,
        placeholder=f"Choose one of {len(PRESETS)}",
        on_change=_apply_preset,
    )
    st.caption("It sets all the controls." if chosen is None else PRESETS[chosen].note)


def _apply_preset() -> None:
    if st.session_state.preset is not None:
        _set(PRESETS[st.session_state.preset].settings)


def _free() -> None:
    """Freed σ's start where the Edge of Chaos is, not somewhere else."""
    state = st.session_state
    if state.sigmas is Sigmas.FREE:
        try:
            made = look(state.shown).design
        except ValueError:
            return
        for name, value in (("sigma_w", made.sigma_w), ("sigma_b", made.sigma_b)):
            state[name] = span(name, state.activation, state.q_star).nearest(round(value, 4))


def _numbers(outlook: Outlook) -> str:
    """In a row that wraps."""
    design, finite = outlook.design, outlook.finite
    safe = None if outlook.safe_clip is None else outlook.safe_clip.value
    rows = [
        ("odds to explode", f"{finite.explode:.1%}"),
        ("odds to vanish", f"{finite.vanish:.1%}"),
        ("threshold τ", f"{design.threshold:.3f}"),
        ("clip m", "none" if design.clip is None else f"{design.clip:.3f}"),
        ("largest safe m", "none" if safe is None else f"{safe:.3f}"),
        ("V′(q*)", f"{design.v_prime:.3f}"),
        ("V″(q*)", f"{round(design.v_second, 3) + 0.0:.3f}"),
        ("σ_w", f"{outlook.sigma_w:.3f}"),
        ("σ_b", f"{outlook.sigma_b:.3f}"),
    ]
    return f'<dl class="numbers">{"".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in rows)}</dl>'


def _pictures(outlook: Outlook) -> str:
    odds = "5–95 % and 10–90 % of initialisations and inputs, median."
    back = "The same of the gradient's gain on its way back; above 3, its norm has grown thirtyfold."
    lost = "q runs away or dies out: there is no q at which R could be drawn."
    meeting = lost if outlook.correlations is None else str(outlook.correlations)
    pictures = [
        _picture("Variance map V(q)", charts.variance, outlook, str(outlook.fixed_points)),
        _picture("Correlation map R(ρ)", charts.correlation, outlook, meeting),
        _picture("q through the layers", charts.q, outlook, odds),
        _picture("Gain of the gradient", charts.gain, outlook, back),
        _picture("Activation φ", charts.activation, outlook, "Behind: the Gaussian it is fed."),
        _picture("V′ and V″ against the clip", charts.clips, outlook, "On the Edge of Chaos: V′ blue, V″ orange.")
        if outlook.slope_of_clip is not None
        else "",
        _picture("Edge of Chaos", charts.edge, outlook, "The curve over all q*, and where this network stands."),
    ]
    return f'<div class="pictures">{"".join(pictures)}</div>'


def _picture(title: str, chart: Callable[[Outlook, str], str | None], outlook: Outlook, caption: str) -> str:
    drawing = chart(outlook, f"{title}. {caption}")
    inside = "" if drawing is None else f'<div class="drawing">{drawing}</div>'
    return f"<figure><strong>{escape(title)}</strong>{inside}<figcaption>{escape(caption)}</figcaption></figure>"


def _take_away(outlook: Outlook) -> None:
    st.markdown("**The same design**")
    st.code(code(outlook), language="python")
    if not outlook.settings.on_edge:
        st.caption("The command line designs on the Edge of Chaos only:")
    st.code(command(outlook), language="bash")


def _plain(text: str) -> str:
    """Text as it is: an address must not be able to put Markdown, let alone a picture, onto the page."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]()<>#+-!|$~:" else c for c in text)


if __name__ == "__main__":
    main()
