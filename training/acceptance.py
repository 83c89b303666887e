"""How much of the draft's words the target accepts when both continue unseen books.

`python -m training.acceptance --corpus DIR` lets the target continue a long prefix of each book and compares, at every
new token, the target's distribution with the draft's, whose cache holds a few first tokens and a window of recent ones
with positions inside the cache. The mean of sum min(p, q) is the chance that speculative sampling accepts a token; at
temperature 0 it is the share of equal first choices. Below temperature 1, top-p is 0.9.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor

from training.decode import prefill
from training.model import Llama
from training.quantise import load_model
from training.text import Encoder, normalise, read_records


def distribution(scores: Tensor, temperature: float, top_p: float = 0.9) -> Tensor:
    """Probabilities as the sampler sees them."""
    if temperature == 0:
        return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).float()
    share = (scores / temperature).softmax(-1)
    if temperature >= 1:
        return share
    ordered, index = share.sort(-1, descending=True)
    ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered > top_p, 0)
    return torch.zeros_like(share).scatter(-1, index, ordered / ordered.sum(-1, keepdim=True))


@torch.no_grad()
def continue_text(model: Llama, ids: Tensor, count: int, temperature: float) -> tuple[list[int], Tensor]:
    """Tokens drawn after a prefix, and the distribution that each was drawn from."""
    cache, x = prefill(model, ids)
    prefix, length = [(k[None], v[None]) for k, v in cache], len(ids)
    scores = model.logits(x[-1:])
    tokens: list[int] = []
    shares: list[Tensor] = []
    for step in range(count):
        share = distribution(scores[0].float(), temperature)
        shares.append(share)
        tokens.append(int(torch.multinomial(share, 1)))
        cos, sin = model.angles(torch.tensor([length + step], device=ids.device))
        x = model.model.embed_tokens(torch.tensor([[tokens[-1]]], device=ids.device))
        for number, layer in enumerate(model.blocks()):
            q, k, v = layer.self_attn.project(layer.input_layernorm(x), cos, sin)
            keys, values = (torch.cat(pair, 2) for pair in zip(prefix[number], (k, v), strict=True))
            prefix[number] = (keys, values)
            x = layer.after_attention(x, torch.nn.functional.scaled_dot_product_attention(q, keys, values))
        scores = model.logits(x[0])
    return tokens, torch.stack(shares)


@torch.no_grad()
def window_shares(
    draft: Llama, ids: list[int], tokens: list[int], sinks: int, recent: int, temperature: float
) -> Tensor:
    """The draft's distribution before each new token, from first tokens and recent ones only."""
    device = draft.model.norm.weight.device
    rows = [[*ids[:sinks], *(ids + tokens[:step])[-recent:]] for step in range(len(tokens))]
    inputs = torch.tensor(rows, device=device)
    positions = torch.arange(inputs.shape[1], device=device)
    parts = [draft.logits(draft.hidden(part, positions)[:, -1]) for part in inputs.split(16)]
    return distribution(torch.cat(parts).float(), temperature)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--target", type=Path, default=Path("triforce_core/assets/builtin/target"))
    parser.add_argument("--draft", type=Path, default=Path("triforce_core/assets/builtin/draft"))
    parser.add_argument("--tokenizer", type=Path, default=Path("triforce_core/assets/builtin/tokenizer.model"))
    parser.add_argument("--prefix", type=int, default=4096, help="tokens of each book before the continuation")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--books", type=int, default=8)
    parser.add_argument("--sinks", type=int, default=16)
    parser.add_argument("--recent", type=int, nargs="*", default=[240, 496])
    parser.add_argument("--temperatures", type=float, nargs="*", default=[0.0, 0.6, 1.0])
    parser.add_argument("--examples", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target, draft = load_model(options.target).to(device), load_model(options.draft).to(device)
    encoder = Encoder(options.tokenizer)
    prefixes = []
    for record in read_records(options.corpus / "books-dev.jsonl.zst")[: options.books]:
        text = normalise(record["text"])
        middle = text.find("\n", len(text) // 3) + 1
        prefixes.append(
            [encoder.doc, *encoder.lines(text[middle : middle + 8 * options.prefix]).ids.tolist()][: options.prefix]
        )
    rows = []
    for temperature in options.temperatures:
        torch.manual_seed(0)
        sums = dict.fromkeys(options.recent, 0.0)
        for ids in prefixes:
            tokens, shares = continue_text(target, torch.tensor(ids, device=device), options.tokens, temperature)
            if options.examples:
                print(f"    {temperature}: ... {encoder.decode(ids[-30:])!r} -> {encoder.decode(tokens)!r}")
            for recent in options.recent:
                guess = window_shares(draft, ids, tokens, options.sinks, recent, temperature)
                sums[recent] += float(torch.minimum(shares, guess).sum(-1).mean()) / len(prefixes)
        row = {
            "temperature": temperature,
            **{f"{options.sinks}+{recent}": round(value, 3) for recent, value in sums.items()},
        }
        rows.append(row)
        print(row, flush=True)
    print(json.dumps({"prefix": options.prefix, "books": len(prefixes), "tokens": options.tokens, "acceptance": rows}))


if __name__ == "__main__":
    main()
