"""Ranks the passages of every question as the application's finder does: `torchrun -m training.writer_ranks DATA`.

DATA is the folder that `training.writer_data` wrote; what it holds of questions gets `ranked`. Vectors of all passages
and the words shared with the question choose what the encoder reads together with it, as in
`triforce_core.evidence.finder`.
"""

from __future__ import annotations

import argparse
import pickle
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from training.asked import Asked
from training.encoder_report import said
from training.encoder_rows import BEFORE, QUESTION, row_of
from training.mpnet import BEGIN, END, Encoder, load
from training.place import Place

WORDS, NEAR, WORDS_LATE, READ, KEPT = 0.1, 3.0, 1.0, 12, 10  # as in the finder; passages that are kept


def rank(one: Asked, net: Encoder, device: str) -> list[np.ndarray]:
    """The passages of each question, the best first. int32 [at most KEPT]."""
    vectors = said(net, [row_of([], own[0], own[1:]) for own in one.pieces], device, None)
    asked = [np.concatenate((before[-BEFORE:], own[:QUESTION])) for before, own in one.asked]
    alone = said(net, [([BEGIN, *own.tolist(), END], [-1] * (len(own) + 2)) for own in asked], device, None)
    chosen, first, rows = [], [], []
    for question, own, vector in zip(one.questions, asked, alone, strict=True):
        shared = np.zeros(len(one.units), np.float32)
        shared[question.words[0]] = question.words[1] / max(float(question.words[1].max(initial=0)), 1e-6)
        near = vectors @ vector
        best = np.argsort(-(near + WORDS * shared), kind="stable")[:READ]
        chosen.append(best)
        first.append(NEAR * near[best] + WORDS_LATE * shared[best])
        rows += [row_of([own], one.pieces[at][0], one.pieces[at][1:]) for at in best]
    scores = said(net, rows, device, "rank")[:, 0]
    ends = np.cumsum([len(best) for best in chosen])[:-1]
    return [best[np.argsort(-(nats + read), kind="stable")][:KEPT].astype(np.int32)
            for best, nats, read in zip(chosen, first, np.split(scores, ends), strict=True)]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--encoder", type=Path, default=Path("triforce_core/assets/words/encoder.npz"))
    options = parser.parse_args()
    place, begun = Place.find(), time.time()
    held = pickle.loads((options.data / "asked.pkl").read_bytes())
    net = Encoder(load(options.encoder)[0]).to(place.device)
    net.working(torch.bfloat16 if place.device.type == "cuda" else torch.float32, train=False)
    own = {number: rank(one, net, place.device.type) for number, one in enumerate(held["documents"])
           if number % place.world == place.rank and one.questions}
    gathered: list = [None] * place.world
    if place.world > 1:
        dist.all_gather_object(gathered, own)
    else:
        gathered = [own]
    if place.rank == 0:
        first, three, asked = 0, 0, 0
        for number, ranked in (item for part in gathered for item in part.items()):
            for question, order in zip(held["documents"][number].questions, ranked, strict=True):
                question.ranked = order
                if question.right and held["documents"][number].held:
                    asked += 1
                    first += order[0] in question.right
                    three += bool(set(order[:3].tolist()) & set(question.right))
        for one in held["documents"]:
            one.pieces, one.asked = [], []
        (options.data / "ranked.pkl").write_bytes(pickle.dumps(held))
        print(f"ranked in {time.time() - begun:.0f} s; of {asked} held-out questions the right passage is first for "
              f"{first / max(1, asked):.3f}, among three for {three / max(1, asked):.3f}", flush=True)
    if place.world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
