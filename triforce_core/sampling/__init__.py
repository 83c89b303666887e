"""From logits to tokens: the one place where temperature, top-k, top-p, masks and chance act.

Two ways to decide, and no third:

- *coupled* (greedy decoding, and the coupled verifier): every row has one token that the seed and the row's position
  decide, argmax(log p + Gumbel(seed, position)) (Gumbel-max; at temperature 0 the noise is zero). A drafted token
  is right if it equals the verifying model's own draw, so speculation cannot change the text
  (drafter-invariant speculation, arXiv 2408.07978).
- *rejection*: tokens are drawn from explicit distributions with a seeded generator.

Each is there twice: ``Sampler`` decides on the host, one decision after the other; ``DeviceSampling`` and
``DrawnChance`` are the same rules for a device that must not wait for the host. Every value (temperature, noise,
chance) is data there.
"""

from .chance import Chance, SeededChance, SharedChance
from .on_device import DeviceSampling, DrawnChance, FasterSampling, SamplingKind, TensorChance, confidence
from .sampler import Masks, Sampler, chances

__all__ = ["Chance", "DeviceSampling", "DrawnChance", "FasterSampling", "Masks", "Sampler", "SamplingKind",
           "SeededChance", "SharedChance", "TensorChance", "chances", "confidence"]
