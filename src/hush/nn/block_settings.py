"""Setting what is no weight: norms' scales and shifts, branches' own scales, class tokens; and keeping the books."""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from hush.nn.block_rules import Affine, Rules
from hush.nn.drawing import Output
from hush.nn.graph.branch_gain import BranchGain
from hush.nn.graph.nodes import Graph, Node
from hush.nn.graph.paths import Paths
from hush.nn.graph.roles import LayerRole
from hush.nn.init_report import Drawn
from hush.nn.weights import Weights

__all__ = ["ParameterSetting"]


@dataclass
class ParameterSetting:
    """What a model with blocks is drawn with, and what has been set so far, in `drawn`.

    Attributes:
        beta: the scale of a branch.
        left: parameters that are not to be touched, by name, with the reason.
        calibrated: whether each layer that feeds φ is then scaled to the design's share of zeros on this very batch.
        scales: by layer, the factors of that.
    """

    model: nn.Module
    graph: Graph
    roles: list[LayerRole]
    rules: Rules
    beta: float
    weights: Weights
    output: Output
    generator: torch.Generator | None
    left: dict[str, str]
    calibrated: bool = False
    scales: dict[str, float] = field(default_factory=dict)
    drawn: dict[str, Drawn] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.paths = Paths(self.graph)
        self.gain = BranchGain(self.paths, self.rules.slope)
        self.parameters = dict(self.model.named_parameters())
        self.by_node: dict[int, list[LayerRole]] = {}
        for role in self.roles:
            self.by_node.setdefault(role.node, []).append(role)
        joined = any(join.stream is not None for join in self.paths.joins.values())
        through = [role for role in self.roles if role.role == "feeds φ" and role.norm is not None]
        self.chain_depth = 0 if joined else len(through)
        # The norms that φ reads with nothing in between.
        self.in_front: list[Node] = []

    def prepare(self) -> None:
        """What does not depend on what is measured in the pass: most norms, and tokens that join the stream."""
        self.set_tokens()
        for node in self.graph.of_kind("norm"):
            arrivals = self.paths.arrivals(node.index)
            kinds = {None if each.node is None else self.graph[each.node].kind for each in arrivals}
            feeds_phi = kinds == {"activation"} and all(each.norm is None for each in arrivals)
            if not feeds_phi:
                self.set_norm(node, Affine(1.0), "norm")
                continue
            self.in_front.append(node)
            self._check_weight(node)
            if node.options["norm"] in ("batch", "instance", "group") and node.options["bias"]:
                self.set_norm(node, self.rules.norm_in_branch(str(node.options["norm"])), "norm in front of φ")
            else:
                self.set_norm(node, Affine(self.rules.q), "norm in front of φ")

    def _check_weight(self, node: Node) -> None:
        """A norm in front of φ gives q = 1 unless it has a weight, which can make q* of it."""
        q = self.rules.q
        if q != 1.0 and node.options["weight"] not in self.parameters and not self.rules.relative:
            raise ValueError(
                f"φ reads the {node.options['norm']} norm at {node.within or 'the top'}, which has no weight and gives "
                f"q = 1, but the design is for q* = {q:g}; give the norm a weight (elementwise_affine=True), or design "
                f"with q_star=1."
            )

    def calibrate_norms(self, tensors: list[Tensor]) -> None:
        """Scale the norms that φ reads to the design's share of zeros; `tensors` are those of a run of the model."""
        for node in self.in_front:
            weight = node.options["weight"]
            if weight not in self.drawn:
                continue
            factor = self.rules.factor_to_design(tensors[node.index])
            for name in (weight, node.options["bias"]):
                if name not in self.drawn:
                    continue
                entry, parameter = self.drawn[name], self.parameters[name]
                with torch.no_grad():
                    parameter.mul_(factor)
                kind = f"set to {float(parameter.detach()[0]):.4g}" if entry.kind.startswith("set to") else entry.kind
                self.drawn[name] = replace(entry, kind=kind, std=entry.std * factor)
            self.scales[node.within] = factor

    def set_tokens(self) -> None:
        """Class tokens and the like get the size of the stream they join.

        Much smaller ones, as they often come, would be blown up by the first norm, and so would their gradient.
        """
        for node in self.graph.of_kind("concat"):
            if not node.inputs:
                continue
            starts = any(
                role.role == "starts the stream"
                for source in self.paths.sources(node.inputs[0])
                for role in self.by_node.get(source, [])
            )
            moment = 1.0 if starts else self.graph[node.inputs[0]].second_moment
            for name in node.parameters:
                parameter = self.parameters.get(name)
                if parameter is None or name in self.left or parameter.shape[-1] != node.features:
                    continue
                with torch.no_grad():
                    parameter.normal_(0.0, math.sqrt(moment), generator=self.generator)
                self.drawn[name] = Drawn(
                    *(name, tuple(parameter.shape), "token", "joins the stream", ""), "gaussian", math.sqrt(moment)
                )

    def set_norm(self, node: Node, affine: Affine, role: str) -> None:
        """γ and β of a norm; a norm by hand, or one without parameters of its own, stays as it is."""
        layer = f"{node.options['norm']} norm"
        if node.options["weight"] in self.parameters and node.options["weight"] not in self.left:
            self.gain.gamma2[node.index] = affine.gamma2
        for part, mean, variance in (
            ("weight", math.sqrt(affine.gamma2), 0.0),
            ("bias", affine.mean, affine.variance),
        ):
            name = node.options[part]
            parameter = self.parameters.get(name)
            if parameter is None or name in self.left:
                continue
            with torch.no_grad():
                if variance > 0.0:
                    parameter.copy_(mean + math.sqrt(variance) * self.shifts(parameter))
                else:
                    parameter.fill_(mean)
            kind = f"normal quantiles around {mean:.3g}" if variance > 0.0 else f"set to {mean:.4g}"
            shape = tuple(parameter.shape)
            self.drawn[name] = Drawn(name, shape, layer, role, "", kind, math.sqrt(variance))

    def shifts(self, like: Tensor) -> Tensor:
        """The quantiles of a standard normal in random order: a few channels have its spread exactly, not by chance."""
        count = like.numel()
        order = torch.randperm(count, generator=self.generator).to(like.device)
        quantiles = torch.special.ndtri((torch.arange(count, dtype=torch.float64, device=like.device) + 0.5) / count)
        scale = quantiles.square().mean().sqrt() if count > 1 else quantiles.new_ones(())
        shifts: Tensor = (quantiles / scale)[order].view_as(like).to(like.dtype)
        return shifts

    def set_scale(self, node: Node) -> bool:
        """A branch's own scale, such as LayerScale, starts at β; whether it could be set."""
        name = str(node.options["parameter"])
        parameter = self.parameters.get(name)
        if parameter is None or name in self.left:
            return False
        if name not in self.drawn:
            with torch.no_grad():
                parameter.fill_(self.beta)
            shape, kind = tuple(parameter.shape), f"set to {self.beta:.4g}"
            self.drawn[name] = Drawn(name, shape, "scale", "the branch's own scale", "", kind, 0.0)
        return True
