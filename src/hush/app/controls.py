"""The page's sliders and lists, and the settings they stand at; which are drawn depends on the block."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from hush.app.presets import PRESETS
from hush.app.settings import BLOCKS, NORMS, NUMBER, WHOLE, Clip, Settings, Sigmas, branch_rules, q_is_given, span
from hush.app.view import compute_view
from hush.theory import activation_names, entry_of
from hush.theory.design_arguments import RELATIVE_CLIP

__all__ = ["draw_controls", "set_controls"]

_BLOCKS = {
    "chain": "a plain chain of layers",
    "residual": "residual, one matrix",
    "feedforward": "residual, feed-forward",
    "gated": "residual, gated feed-forward",
}
_NORMS = {
    "none": "none",
    "rms": "RMSNorm in front",
    "layer": "LayerNorm in front",
    "post-rms": "RMSNorm behind the sum",
    "post-layer": "LayerNorm behind the sum",
}
_BRANCHES = {"1/sqrt(depth)": "1/√L", "1/depth": "1/L", "learned": "learned", NUMBER: "a number"}
_CLIPS = {Clip.SAFE: "as design chooses", Clip.HEIGHT: "m", Clip.SLOPE: "V′(q*)"}
_STREAM_CLIPS = {Clip.SAFE: "√q*", Clip.HEIGHT: "m"}
_SIGMAS = {Sigmas.EDGE: "on the Edge of Chaos", Sigmas.FACTOR: "weights' σ scaled", Sigmas.FREE: "both free"}
_FIELDS = tuple(Settings.__dataclass_fields__)


def set_controls(settings: Settings) -> None:
    """Move every control, drawn or not."""
    for name in _FIELDS:
        st.session_state[name] = getattr(settings, name)


def draw_controls() -> Settings:
    """All the widgets; returns what they stand at."""
    state = st.session_state
    for name in _FIELDS:
        # Streamlit forgets the value of a widget that is not drawn. One that is drawn must not be set: a key pressed
        # while the page is being redrawn would be lost.
        if name not in state:
            state[name] = getattr(state.kept, name)
    _agree()
    _preset()
    st.selectbox("Block", BLOCKS, key="block", format_func=lambda name: _BLOCKS.get(name, name))
    names = activation_names()
    st.selectbox("Activation", names, key="activation", format_func=lambda name: entry_of(name).title)
    _slider("sparsity", "Sparsity s", "%.4g", "The share of exact zeros at q*.")
    # In a box each, so that what comes after them keeps its place on the page when they grow or shrink.
    with st.container():
        if entry_of(state.activation).clipped:
            _clip()
    _slider("width", "Width N", "%d")
    _slider("depth", "Depth L", "%d", "Layers, or blocks of a residual network.")
    with st.container():
        if state.block == "chain":
            _chain()
        else:
            _stream()
    settings = Settings(**{name: state[name] for name in _FIELDS})
    state.kept = settings
    return settings


def _clip() -> None:
    state = st.session_state
    choices = _CLIPS if state.block == "chain" else _STREAM_CLIPS
    if entry_of(state.activation).relative:
        choices = {**choices, Clip.SAFE: f"{RELATIVE_CLIP:g} rms(h)"}
    st.radio("Clip by", list(choices), key="clip_by", format_func=choices.__getitem__, horizontal=True)
    if state.clip_by is Clip.HEIGHT:
        unit = " in units of rms(h)" if entry_of(state.activation).relative else ""
        _slider("clip", f"Clip m{unit}", "%.4g")
    elif state.clip_by is Clip.SLOPE:
        _slider("v_prime", "V′(q*)", "%.4g", "The slope of the variance map; it grows with m.")


def _chain() -> None:
    """What a chain has and a residual stream has not."""
    state = st.session_state
    st.radio(
        "σ of weights and biases",
        list(Sigmas),
        key="sigmas",
        format_func=_SIGMAS.__getitem__,
        horizontal=True,
        on_change=_free,
    )
    if state.sigmas is Sigmas.FACTOR:
        _slider("sigma_w_factor", "Weights' σ as a multiple of that on the Edge of Chaos", "%.4g")
    elif state.sigmas is Sigmas.FREE:
        _slider("sigma_w", "σ of the weights", "%.4g")
        _slider("sigma_b", "σ of the biases", "%.4g")
    with st.expander("Scale and cobweb"):
        _q_star()
        _slider("start", "Cobweb starts at q/q*", "%.4g", "1.9 is the norm of the brightest hundredth of images.")


def _stream() -> None:
    """What a residual stream has and a chain has not."""
    state = st.session_state
    st.selectbox("Norm n", list(NORMS), key="norm", format_func=lambda name: _NORMS.get(name, name))
    rules = list(branch_rules())
    help_text = "What the branch is multiplied with before it is added to the stream."
    st.radio(
        "Branch scale β", rules, key="branch_rule", format_func=_BRANCHES.__getitem__, horizontal=True, help=help_text
    )
    if state.branch_rule == NUMBER:
        _slider("branch_scale", "β", "%.4g")
    if state.block != "residual":
        _slider("hidden_ratio", "Hidden units over width", "%.4g")
    if not q_is_given(state.block, state.norm):
        with st.expander("Scale"):
            _q_star()


def _agree() -> None:
    """Another block may have left the clip or q* at what it does not know."""
    state = st.session_state
    if state.block != "chain" and state.clip_by is Clip.SLOPE:
        state.clip_by = Clip.SAFE
    if q_is_given(state.block, state.norm) and state.q_star != 1.0:
        state.q_star = 1.0


def _q_star() -> None:
    _slider("q_star", "q*", "%.4g", "The variance the network is designed for: a unit, for scale is free.")


def _slider(name: str, label: str, form: str, explanation: str | None = None) -> None:
    state = st.session_state
    allowed = span(name, state.activation, state.q_star, state.block)
    kind: Callable[[float], Any] = int if name in WHOLE else float
    inside = kind(allowed.nearest(state[name]))
    bounds = (kind(allowed.low), kind(allowed.high))
    # Another activation, block or q* may have left it outside. To Streamlit a slider with other ends is another slider,
    # which begins at its lower end unless it is told.
    if state[name] != inside or state.get(f"ends of {name}", bounds) != bounds:
        state[name] = inside
    state[f"ends of {name}"] = bounds
    st.slider(label, *bounds, step=kind(allowed.step), format=form, key=name, help=explanation)


def _preset() -> None:
    """The figures of the paper and the examples; the choice is forgotten as soon as a control leaves it."""
    state = st.session_state
    chosen = state.get("preset")
    if chosen is not None and any(state[name] != getattr(PRESETS[chosen].settings, name) for name in _FIELDS):
        state.preset = chosen = None
    st.selectbox(
        "A figure of the paper, or an example",
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
        set_controls(PRESETS[st.session_state.preset].settings)


def _free() -> None:
    """Freed σ's start where the Edge of Chaos is, not somewhere else."""
    state = st.session_state
    if state.sigmas is Sigmas.FREE:
        try:
            made = compute_view(state.shown).design
        except ValueError:
            return
        for name, value in (("sigma_w", made.sigma_w), ("sigma_b", made.sigma_b)):
            state[name] = span(name, state.activation, state.q_star).nearest(round(value, 4))
