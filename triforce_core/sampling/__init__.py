"""From logits to tokens: the one place where temperature, top-k, top-p, masks and chance act.

- *coupled* (greedy decoding, and the coupled verifier): the seed and the row's position decide each token,
  argmax(log p + Gumbel(seed, position)), so speculation cannot change the text (arXiv 2408.07978).
- *rejection*: tokens are drawn from explicit distributions with a seeded generator.

Each is there twice: ``Sampler`` decides on the host; ``DeviceSampling`` and ``DrawnChance`` are the same rules as data
for a device that must not wait for the host.
"""

from .on_device import DeviceSampling, DrawnChance, FasterSampling, SamplingKind, TensorChance, confidence
from .sampler import Chance, Masks, Sampler, SeededChance, SharedChance, chances

__all__ = ["Chance", "DeviceSampling", "DrawnChance", "FasterSampling", "Masks", "Sampler", "SamplingKind",
           "SeededChance", "SharedChance", "TensorChance", "chances", "confidence"]
