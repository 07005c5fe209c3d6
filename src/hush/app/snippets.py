"""The code and the command line that give the same design."""

from hush.app.address import to_address
from hush.app.settings import Clip, Sigmas
from hush.app.view import View

__all__ = ["code", "command"]


def code(view: View) -> str:
    """Python that makes the design of the page, and off the Edge of Chaos its odds."""
    settings = view.settings
    arguments = [f'"{settings.activation}"', *(f"{name}={value}" for name, value in _choices(view))]
    design = f"design = hush.design({', '.join(arguments)})"
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


def command(view: View) -> str:
    """`hush design …`, which designs on the Edge of Chaos only."""
    options = [f"--{name.replace('_', '-')} {value}" for name, value in _choices(view)]
    return f"hush design {view.settings.activation} {' '.join(options)}"


def _choices(view: View) -> list[tuple[str, str]]:
    """(argument, value) pairs; the address writes its numbers so that they read back exactly."""
    settings = view.settings
    address = to_address(settings)
    names = ["sparsity"]
    if settings.is_clipped and settings.clip_by is not Clip.SAFE:
        names.append("v_prime" if settings.clip_by is Clip.SLOPE else "clip")
    names += ["width", "depth", *(["q_star"] if "q_star" in address else [])]
    return [(name, address[name]) for name in names]
