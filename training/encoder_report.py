"""What a trained encoder finds in documents that no training saw: `python -m training.encoder_report DATA FILE`.

Questions of held-out documents: BM25 over the same passages, vectors, both, and the encoder's order of the 12 and 24
best of both. Claims of held-out documents: the area under the curve of each kind of false ones against the true ones,
and how many are caught where 6 % of the true ones are.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.encoder_rows import Data, claim_of, groups_of
from training.mpnet import Encoder, load

AT_ONCE = 40_000  # pieces
BY_WORDS = 0.1  # what the best score by words counts beside a cosine, in every order of both
FALSELY = 0.06  # share of the true claims that may be called not supported


@torch.inference_mode()
def said(net: Encoder, rows: Sequence[tuple[list[int], list[int]]], device: str, head: str | None) -> np.ndarray:
    """fp32 [rows, outputs of the head, or the width of vectors]."""
    found: list[Tensor] = []
    order: list[Tensor] = []
    for group in groups_of(rows, AT_ONCE if device == "cuda" else 4000):
        read = net.read(group.ids.to(device).long())
        found.append((net.head(read.hidden[:, 0], head) if head else read.means()).float().cpu())
        order.append(group.rows)
    return torch.cat(found)[torch.cat(order).argsort()].numpy()


@torch.inference_mode()
def best_sentences(net: Encoder, row: tuple[list[int], list[int]], lengths: Sequence[int], device: str) -> int:
    """The sentence of a passage with the highest mean mark."""
    ids, _ = row
    read = net.read(torch.tensor([ids], device=device))
    marks = net.head(read.hidden[0], "mark")[:, 0].float().cpu().numpy()
    at, means = len(ids) - 1 - sum(lengths), []
    for length in lengths:
        means.append(float(marks[at : at + length].mean()) if length else -99.0)
        at += length
    return int(np.argmax(means))


def ranks(data: Data, net: Encoder, device: str, most: int | None) -> list[dict]:
    """First and in three of each way, by kind. Returns of each question the passages that were read, best first."""
    held = data.held
    rows = [number for number in np.flatnonzero(held["held"]) if held["document"][number] in held["held_passages"]]
    rows = rows[:: max(1, len(rows) // most)] if most else rows
    vectors: dict[int, np.ndarray] = {}
    outcome: dict[str, dict[str, list[tuple[bool, bool]]]] = defaultdict(lambda: defaultdict(list))
    sure: dict[bool, list[float]] = defaultdict(list)
    marked: list[bool] = []
    told_of: list[dict] = []
    for number in rows:
        document, right = int(held["document"][number]), set(data.column("right", number).tolist())
        own = held["held_passages"][document]
        if document not in vectors:
            vectors[document] = said(net, [data.row([], at) for at in own], device, None)
        question = data.question(number)
        near = vectors[document] @ said(net, [data.alone(question)], device, None)[0]
        words = dict(zip(data.column("by_words", number).tolist(), data.column("words", number).tolist(), strict=False))
        shared = np.array([words.get(int(at), 0.0) for at in own])
        both = near + BY_WORDS * shared / max(shared.max(), 1e-6)
        first = {"BM25": own[np.argsort(-shared, kind="stable")], "vectors": own[np.argsort(-near)],
                 "both": own[np.argsort(-both)]}
        best = first["both"][:24]
        scores = said(net, [data.row([question], at) for at in best], device, "rank")[:, 0]
        first["read 12"] = best[:12][np.argsort(-scores[:12])]
        first["read 24"] = best[np.argsort(-scores)]
        kind = data.kinds[held["kind"][number]]
        if not kind.startswith("table"):
            sure[bool(right)].append(float(scores.max()))
        order, place = np.argsort(-scores), dict(zip(own.tolist(), near.tolist(), strict=True))
        told_of.append({"kind": kind, "document": document, "answers": bool(right), "scores": scores[order].tolist(),
                        "right": [int(at) in right for at in best[order]],
                        "near": [place[int(at)] for at in best[order]]})
        if not right:
            continue
        for way, order in first.items():
            hit = (order[0] in right, bool(right & set(order[:3].tolist())))
            for name in ("all", kind.split()[0], kind) if not kind.startswith("table") else ("tables",):
                outcome[name][way].append(hit)
            if len(order) > 24:
                outcome["all"][f"in 12, in 24 of {way}"].append(tuple(bool(right & set(order[:count].tolist()))
                                                                      for count in (12, 24)))
        top = int(first["read 24"][0])
        if top in right:
            mask = int(data.column("marks", number)[list(data.column("right", number)).index(top)])
            lengths = [len(one) for one in data.passage(top)[1]]
            row = data.row([question], top, mask)
            if len(lengths) > 1 and len(row[0]) < 220:
                marked.append(bool(mask >> best_sentences(net, row, lengths, device) & 1))
    for name, ways in sorted(outcome.items(), key=lambda one: -len(one[1]["BM25"])):
        if len(ways["BM25"]) >= 12:
            told = ", ".join(f"{way} {np.mean([hit[0] for hit in hits]):.3f} / {np.mean([hit[1] for hit in hits]):.3f}"
                             for way, hits in ways.items())
            print(f"{name} ({len(ways['BM25'])}): {told}", flush=True)
    print(f"the marked sentence is right in {np.mean(marked):.3f} of {len(marked)} right passages of several")
    if sure[True] and sure[False]:
        print(f"answered against unanswerable ({len(sure[True])}, {len(sure[False])}): area "
              f"{area(sure[True], sure[False]):.3f}", flush=True)
    return told_of


def area(high: Sequence[float], low: Sequence[float]) -> float:
    """The chance that one of the first is above one of the second."""
    high, low = np.asarray(high)[:, None], np.asarray(low)[None]
    return float((high > low).mean() + 0.5 * (high == low).mean())


def checks(data: Data, net: Encoder, device: str, most: int | None) -> list[dict]:
    """Of claims about held-out documents, written by hand and made. Returns what is said of each."""
    told_of: list[dict] = []
    table = data.held["checks"]
    unseen = {number for number, (_, one) in enumerate(data.held["documents"]) if one}
    for title, begins in (("by hand", "held hand"), ("made", "check")):
        own = [row for row in table if data.kinds[row[4]].startswith(begins) and row[5] in unseen]
        own = own[:: max(1, len(own) // most)] if most else own
        if not own:
            continue
        judged = said(net, [data.row(claim_of(data, row, True), row[2]) for row in own], device, "check")
        judged = np.exp(judged - judged.max(1, keepdims=True))
        judged /= judged.sum(1, keepdims=True)
        told_of += [{"kind": data.kinds[row[4]], "label": int(row[3]), "document": int(row[5]), "judged": one.tolist()}
                    for row, one in zip(own, judged, strict=True)]
        supported = judged[:, 0]
        true = [float(one) for one, row in zip(supported, own, strict=True) if row[3] == 0]
        level = np.quantile(true, FALSELY)
        kinds: dict[str, list[float]] = defaultdict(list)
        for one, row in zip(supported, own, strict=True):
            if row[3] != 0:
                for name in ("all", data.kinds[row[4]].removeprefix("held hand ").removeprefix("check ")):
                    kinds[name].append(float(one))
        told = ", ".join(f"{name} ({len(low)}) {area(true, low):.3f} / {np.mean(np.array(low) < level):.2f}"
                         for name, low in sorted(kinds.items(), key=lambda one: -len(one[1])))
        print(f"claims {title}, {len(true)} true; area / caught at {FALSELY:.0%}: {told}", flush=True)
        sure = [(row[3], judged[at, 2]) for at, row in enumerate(own)]
        for edge in (0.5, 0.7, 0.8, 0.9):
            called = [label for label, value in sure if value > edge]
            right = np.mean([label in (2, 3) for label in called]) if called else 0
            print(f"  contradicted above {edge}: {len(called)}, right {right:.2f}", flush=True)
    return told_of


def report(data: Data, net: Encoder, device: str, most: int | None = None, told: Path | None = None) -> None:
    """Print all; write what was said of each question and claim."""
    unseen = {number for number, (_, one) in enumerate(data.held["documents"]) if one}
    data.held["held_passages"] = {number: own.astype(np.int64) for number, own in data.held["passages_of"].items()
                                  if number in unseen}
    net.working(torch.bfloat16, train=False)
    found = {"questions": ranks(data, net, device, most), "claims": checks(data, net, device, most)}
    if told:
        told.write_text(json.dumps(found), encoding="utf-8")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--most", type=int, help="questions and claims, for a trial")
    parser.add_argument("--told", type=Path, help="what was said of each question and claim")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    report(Data(options.data), Encoder(load(options.file)[0]).to(options.device), options.device, options.most,
           options.told)


if __name__ == "__main__":
    main()
