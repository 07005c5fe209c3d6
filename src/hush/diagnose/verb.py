"""`hush.diagnose(model, inputs)`: what makes the package callable, and how type checkers see it."""

import sys
from types import ModuleType
from typing import cast

from torch import Tensor, nn

from hush.diagnose import diagnosis, monitor
from hush.diagnose.run import Loss, run
from hush.theory import Design

__all__ = ["Verb", "diagnose"]


class Verb(ModuleType):
    """The type of the package `hush.diagnose`."""

    Diagnosis: type[diagnosis.Diagnosis]
    Monitor: type[monitor.Monitor]

    def __call__(
        self,
        model: nn.Module,
        inputs: Tensor | tuple[Tensor, ...],
        targets: Tensor | None = None,
        *,
        design: Design | None = None,
        loss: Loss | None = None,
        chunk: int = 128,
        allow: tuple[type[nn.Module], ...] = (),
    ) -> diagnosis.Diagnosis:
        """Run `model` on `inputs` and say, layer by layer, whether it follows the theory.

        A layer is one call of an activation module: h its input, φ(h) its output. The model is run in eval mode, in
        chunks, and left exactly as it was: no hook, no gradient, no changed buffer or random state stays behind.

        Arguments:
            inputs: a tensor, or a tuple of the model's arguments, batch first.
            targets: class numbers (cross-entropy) or values (squared error), for the gradient; without them a random
                linear probe of the outputs is differentiated.
            design: what the model was made for; without it σ_w, σ_b and φ are read off the model.
            loss: (outputs, targets) ↦ scalar, summed over the batch, in place of the two above.
            chunk: how many inputs are run at once, which bounds the memory.
            allow: activation classes that may stand beside the design's own.

        Raises:
            ValueError: if the model has no Linear or Conv or no activation module, the inputs are empty, constant,
                not finite or of the wrong dtype, or the design is for another activation than the model uses.
        """
        return run(model, inputs, targets, design=design, loss=loss, chunk=chunk, allow=allow)


diagnose = cast(Verb, sys.modules["hush.diagnose"])
