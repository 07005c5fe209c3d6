"""Draw a model with blocks in one pass: each layer just before it runs, from what it is about to read."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from hush.nn.block_rules import Affine
from hush.nn.block_settings import ParameterSetting
from hush.nn.graph.nodes import Node
from hush.nn.graph.paths import Join
from hush.nn.graph.recorder import LayerUse
from hush.nn.graph.roles import LayerRole
from hush.nn.graph.tensor_facts import moments
from hush.nn.init_report import Drawn
from hush.nn.weights import DRAWS, fan_in

__all__ = ["BlockDrawing"]


class BlockDrawing(ParameterSetting):
    """Called before each layer of a run; what it did is in `drawn`, what it left and why in `left`."""

    def __call__(self, use: LayerUse) -> None:
        roles = self.by_node.get(use.node)
        if roles is None or use.weight is None or use.reads is None:
            return
        node = self.graph[use.node]
        fan = _fan_in(use.weight, node)
        if node.options.get("weight") in self.left:
            # It stays as it is, its bias too, and what it does to a gradient is read off its weights.
            self.gain.sigma2[use.node] = float(use.weight.detach().double().square().mean()) * fan
            if bias := node.options.get("bias"):
                self.left.setdefault(bias, "belongs to a weight that is left alone")
            return
        moment = _effective_moment(use, node, fan)
        if not (math.isfinite(moment) and moment > 0.0):
            raise ValueError(
                f"what {node.layer or node.within!r} reads has the second moment {moment:g} on this example; no "
                f"weights bring its output to a given size. Give an example that is not all zeros, or pass "
                f"keep=({node.within!r},)."
            )
        for role in roles:
            sigma2, bias_variance = self._size(role, node, use, moment)
            if sigma2 is None:
                for name in (node.options.get("weight"), node.options.get("bias")):
                    if name:
                        self.left.setdefault(name, "an output layer, and output='keep'")
                continue
            if self._draw(role, node, use, sigma2, bias_variance, moment):
                if self.calibrated and role.role == "feeds φ" and role.norm is None and role.rows is None:
                    sigma2 *= self._calibrate(role, node, use) ** 2
                self.gain.sigma2[role.node] = sigma2
            if role.norm is not None and role.role in ("writes to the stream", "shortcut"):
                self._set_norm_behind(role, node, use)

    def _size(self, role: LayerRole, node: Node, use: LayerUse, moment: float) -> tuple[float | None, float]:
        """(σ², variance of the bias), and the norm or scale behind the layer is set as well."""
        rules, reads = self.rules, node.inputs[0]
        if role.role in ("query", "key"):
            return rules.query_moment / moment, 0.0
        if role.role == "writes to the stream":
            return self._write(role, node, use, moment), 0.0
        if role.role == "shortcut":
            return self._shortcut(role, use, moment), 0.0
        if role.role == "output":
            edge = rules.design.sigma_w2, rules.design.sigma_b2
            sizes = {"preserve": (1.0, 0.0), "zero": (0.0, 0.0), "keep": (None, 0.0)}
            return sizes.get(self.output, edge if self.paths.source_kinds(reads) == {"activation"} else (1.0, 0.0))
        if role.role == "feeds φ" and role.norm is None:
            sigma2, bias = rules.feeding(moment, behind_phi=self._made_of_phi(reads), has_bias=use.bias is not None)
            # A number that stands between the layer and φ multiplies both, so both make up for it.
            between = max(role.factor**2, 1e-300)
            return sigma2 / between, bias / between
        if role.role == "feeds φ" and role.norm is not None and self.chain_depth and role.reads != "the input":
            norm = self.graph[role.norm]
            batch = norm.options["norm"] in ("batch", "instance")
            affine = rules.batch_norm_in_chain(self.chain_depth) if batch else rules.layer_norm_in_chain()
            if norm.options["bias"]:
                self.set_norm(norm, affine, "norm between layer and φ")
        if role.role == "feeds a layer" and role.norm is None and self._made_of_phi(reads):
            return 1.0, 0.0
        return 1.0 / moment, 0.0

    def _calibrate(self, role: LayerRole, node: Node, use: LayerUse) -> float:
        """Scale the layer so that on this batch the share of zeros behind φ is the design's; returns the factor.

        Where φ has no threshold, so that the second moment it reads is q*.
        """
        assert use.reads is not None
        assert use.weight is not None
        with torch.no_grad():
            output = use.again(use.reads, use.weight)
            if use.bias is not None and node.feature_axis is not None:
                shape = [1] * output.dim()
                shape[node.feature_axis] = -1
                output = output + use.bias.view(shape)
            factor = self.rules.factor_to_design(output) / abs(role.factor)
            for tensor, part in ((use.weight, "weight"), (use.bias, "bias")):
                name = node.options.get(part)
                if tensor is not None and name in self.drawn:
                    tensor.mul_(factor)
                    self.drawn[name] = replace(self.drawn[name], std=self.drawn[name].std * factor)
        self.scales[node.layer or node.within] = factor
        return factor

    def _made_of_phi(self, index: int) -> bool:
        """Whether it is φ's output, as it is or through layers that keep its size; no norm in between."""
        if self.paths.norm_before(index) is not None:
            return False
        for source in self.paths.sources(index):
            node = self.graph[source]
            roles = self.by_node.get(source, [])
            keeps = node.kind == "layer" and all(role.role == "feeds a layer" and role.norm is None for role in roles)
            if node.kind != "activation" and not (keeps and self._made_of_phi(node.inputs[0])):
                return False
        return True

    def _write(self, role: LayerRole, node: Node, use: LayerUse, moment: float) -> float:
        """σ² of the last layer of a branch; where a norm follows, that has the say, and the layer gives out 1."""
        assert role.join is not None
        if role.norm is not None:
            return 1.0 / moment
        return self._wanted(role, use) / max(self._rest(role, node, use), 1e-300)

    def _wanted(self, role: LayerRole, use: LayerUse) -> float:
        """The gain of a squared gradient that the branch is to have, without a scale of its own if it has one."""
        assert role.join is not None
        # A number in the model's forward, 1/√L say, is its β and is taken as it is; a parameter starts at β.
        own = role.factor != 1.0 or (role.scale is not None and self.set_scale(self.graph[role.scale]))
        return (1.0 if own else self.beta**2) * self._stream_start(role.join.start, use.nodes)

    def _rest(self, role: LayerRole, node: Node, use: LayerUse) -> float:
        """The gain of the branch up to what its last layer reads."""
        assert role.join is not None
        rest = self.gain.to(node.inputs[0], role.join.start, use.nodes)
        return rest if role.post_activation else rest * self.gain.before(role.join.start, use.nodes)

    def _shortcut(self, role: LayerRole, use: LayerUse, moment: float) -> float:
        """A layer on the stream's own way: the stream's gradient passes with gain 1."""
        assert role.join is not None
        if role.norm is not None:
            return 1.0 / moment
        before = self.gain.before(role.join.start, use.nodes)
        return 1.0 / before if before > 0.0 else 1.0

    def _set_norm_behind(self, role: LayerRole, node: Node, use: LayerUse) -> None:
        """The norm between the last layer of a branch, or of a shortcut, and the stream."""
        assert role.join is not None
        assert role.norm is not None
        assert use.reads is not None
        assert use.weight is not None
        norm, join, rules = self.graph[role.norm], role.join, self.rules
        with torch.no_grad():
            _, square, _, inverse = moments(use.again(use.reads, use.weight), node.feature_axis)
        # What the norm divides by, in units of the layer's σ²: with it γ²·rest/divisor is the gain of the branch.
        batch = norm.options["norm"] in ("batch", "instance")
        divisor = (1.0 / inverse if batch else square) / self.gain.sigma2.get(role.node, 1.0)
        if role.role == "shortcut":
            gamma2 = rules.shortcut(divisor) if role.post_activation else divisor
            self.set_norm(norm, Affine(gamma2), "norm on the shortcut")
            return
        rest, start = self._rest(role, node, use), use.nodes[join.start]
        if not role.post_activation:
            gamma2 = self._wanted(role, use) * divisor / max(rest, 1e-300)
            self.set_norm(norm, Affine(gamma2), "last norm of the branch")
        elif join.identity:
            variance = start.second_moment - start.mean**2
            end = rules.block_end(rest=rest, fluctuation=divisor, stream_mean=start.mean, stream_variance=variance)
            self.set_norm(norm, end, "last norm of the block")
        else:
            shortcut = rules.shortcut(start.fluctuation)
            end = rules.block_end_with_shortcut(rest=rest, fluctuation=divisor, shortcut=shortcut)
            self.set_norm(norm, end, "last norm of the block")

    def _stream_start(self, index: int, nodes: list[Node]) -> float:
        """p₀/p: the second moment of the stream where it starts over that where this branch leaves it."""
        here = index
        while (join := self._join_of(here)) is not None and join.stream is not None and join.identity:
            here = join.stream
        return nodes[here].second_moment / max(nodes[index].second_moment, 1e-300)

    def _join_of(self, index: int) -> Join | None:
        node = self.graph[index]
        while node.kind in ("rearrange", "scale") and node.inputs:
            node = self.graph[node.inputs[0]]
        return self.paths.joins.get(node.index)

    def _draw(
        self, role: LayerRole, node: Node, use: LayerUse, sigma2: float, bias_variance: float, moment: float
    ) -> bool:
        """In place; whether the weight was drawn."""
        options = node.options
        weight, bias = use.weight, use.bias
        assert weight is not None
        known = "1, known" if role.reads == "normalised" and not options.get("kernel") else f"{moment:.3g}, measured"
        reads = f"{role.reads} (second moment {known})"
        turned = bool(options.get("weight_is_in_out")) or (options["op"] in ("matmul", "mm") and weight.dim() == 2)
        matrix = weight.mT if turned else weight
        done = False
        for part, tensor in (("weight", matrix), ("bias", bias)):
            name = options.get(part, "")
            if tensor is None or not name:
                continue
            if name in self.left:
                continue
            if role.rows is not None:
                tensor = tensor[slice(*role.rows)]
                name = f"{name}[{role.rows[0]}:{role.rows[1]}]"
            if name in self.drawn:
                continue  # a weight that is used again
            with torch.no_grad():
                if part == "weight":
                    std = self._draw_weight(tensor, node, sigma2)
                    done = True
                else:
                    std = math.sqrt(bias_variance)
                    tensor.copy_(std * self.shifts(tensor)) if std else tensor.zero_()
            kind = self.weights if part == "weight" else "normal quantiles"
            layer = _layer_name(node)
            self.drawn[name] = Drawn(name, tuple(tensor.shape), layer, role.role, reads, kind, std, role.block)
        return done

    def _draw_weight(self, tensor: Tensor, node: Node, sigma2: float) -> float:
        fan = _fan_in(tensor, node, turned=True)
        std = math.sqrt(sigma2 / fan)
        if str(node.options["op"]).startswith("conv_transpose") or self.weights == "gaussian":
            tensor.normal_(0.0, std, generator=self.generator)
        else:
            DRAWS[self.weights](tensor, sigma2, int(node.options["groups"]), self.generator)
        return std


def _fan_in(weight: Tensor, node: Node, *, turned: bool = False) -> int:
    """How many inputs one unit sums, or would in the middle of an image for a transposed convolution of stride 1."""
    op = str(node.options["op"])
    if op.startswith("conv_transpose"):
        return max(1, weight.shape[0] // int(node.options["groups"]) * math.prod(weight.shape[2:]))
    if not turned and (node.options.get("weight_is_in_out") or op in ("matmul", "mm")):
        return int(weight.shape[-2])
    return fan_in(weight)


def _effective_moment(use: LayerUse, node: Node, fan: int) -> float:
    """n² such that weights of variance σ²/fan-in give an output of second moment σ²n², zeros at the border included.

    For a convolution: the same convolution, with ones for weights, of the squares.
    """
    x = use.reads
    assert x is not None
    assert use.weight is not None
    with torch.no_grad():
        squares = x.detach().double().square()
        if not str(node.options["op"]).startswith("conv"):
            return float(squares.mean())
        # One output channel for each group is enough, because all of a group would be the same.
        weight, groups = use.weight, int(node.options["groups"])
        few = weight[:, :1] if str(node.options["op"]).startswith("conv_transpose") else weight[:groups]
        return float(use.again(squares, torch.ones_like(few, dtype=torch.float64)).mean()) / fan


def _layer_name(node: Node) -> str:
    kernel = node.options.get("kernel")
    name = {"addmm": "Conv1D (a Linear)", "linear": "Linear"}.get(str(node.options["op"]), node.function)
    groups = f", {node.options['groups']} groups" if node.options["groups"] > 1 else ""
    return f"{name} {'×'.join(str(size) for size in kernel)}{groups}" if kernel else name
