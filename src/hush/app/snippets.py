"""The code and the command line that give the same design."""

from hush.app.address import to_address
from hush.app.settings import NORMS, Clip, Settings, Sigmas
from hush.app.stream_view import StreamView, hidden_units
from hush.app.view import View

__all__ = ["code", "command"]

_WORDS = ("block", "norm", "branch_scale")


def code(view: View | StreamView) -> str:
    """Python that makes the design of the page; off the Edge of Chaos its odds, and how `init_` takes it."""
    settings = view.settings
    arguments = [f'"{settings.activation}"', *(f"{name}={_quoted(name, value)}" for name, value in _choices(settings))]
    design = f"design = hush.design({', '.join(arguments)})"
    if settings.has_stream:
        # What counts in any block on a line, what is of this one on another.
        count = next(i for i, argument in enumerate(arguments) if argument.startswith("block="))
        lines = (", ".join(part) for part in (arguments[:count], arguments[count:]))
        design = "design = hush.design(\n" + "".join(f"    {line},\n" for line in lines) + ")"
        draws = "# hush.init_(model, design, example) draws a model of such blocks, in place."
        return f"import hush\n\n{design}\nprint(design)\n{draws}\n"
    if settings.on_edge:
        return f"import hush\n\n{design}\nprint(design)\n"
    if settings.sigmas is Sigmas.FREE:
        sigmas = f"sigma_w, sigma_b = {settings.sigma_w}, {settings.sigma_b}"
    else:
        sigmas = f"sigma_w, sigma_b = {settings.sigma_w_factor} * design.sigma_w, design.sigma_b"
    size = f"{settings.width}, {settings.depth}, q_start=start"
    return (
        f"import hush\nfrom hush.theory import finite_width, phase\n\n{design}\n"
        f"phi, start = design.phi(), design.input_variance\n{sigmas}\n"
        f"print(phase(phi, sigma_w, sigma_b, start))\n"
        f"chains = finite_width(phi, sigma_w, sigma_b, {size})\n"
        f"print(chains.explode, chains.vanish, chains.trains)\n"
    )


def command(view: View | StreamView) -> str:
    """`hush design …`, which designs on the Edge of Chaos only."""
    options = [
        f"--{name.replace('_', '-')}" + ("" if name == "post_norm" else f" {value}")
        for name, value in _choices(view.settings)
    ]
    # A parenthesis means something to the shell.
    return f"hush design {view.settings.activation} {' '.join(options)}".replace("1/sqrt(depth)", "'1/sqrt(depth)'")


def _choices(settings: Settings) -> list[tuple[str, str]]:
    """(argument, value) pairs; the address writes its numbers so that they read back exactly."""
    address = to_address(settings)
    names = ["sparsity"]
    if settings.is_clipped and settings.clip_by is not Clip.SAFE:
        names.append("v_prime" if settings.clip_by is Clip.SLOPE else "clip")
    names += ["width", "depth", *(["q_star"] if "q_star" in address else [])]
    choices = [(name, address[name]) for name in names]
    if settings.has_stream:
        norm, behind = NORMS[settings.norm]
        choices += [("block", settings.block), *([("norm", norm)] if norm else [])]
        choices += [("post_norm", "True")] if behind else []
        choices += [("branch_scale", address["branch_scale"])] if "branch_scale" in address else []
        hidden = hidden_units(settings)
        choices += [("hidden", str(hidden))] if hidden is not None and hidden != 4 * settings.width else []
    return choices


def _quoted(name: str, value: str) -> str:
    """As Python writes it: a word in quotes, a number without."""
    is_number = value.replace(".", "", 1).replace("e-", "", 1).isdigit()
    return f'"{value}"' if name in _WORDS and not is_number else value
