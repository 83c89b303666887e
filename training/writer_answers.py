"""Lets a trained writer answer questions about held-out documents: `python -m training.writer_answers --help`.

Writes for each question the passages, the answer it was trained towards and the one that the model writes, to be judged
by hand.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random

import numpy as np
import torch

from training.writer_model import answering
from training.writer_rows import NOT_SAID, START, STOP, Kind, RowMaker

AT_ONCE, NEW_TOKENS = 48, 120


def prompts(held: RowMaker, asks: str, count: int, document: float) -> list[tuple[str, str]]:
    """(what is read, the answer of the data)."""
    found, kind = [], Kind(4096, 4096, ((asks, 1.0),), document=document, least=1024)
    for number in range(count):
        held.chance = Random(number)  # the same questions for any number of passages
        text = held.encoder.decode(held.row(kind).ids, skip_special_tokens=False)
        read, _, answer = text.partition(f"{START}assistant\n")
        found.append((f"{read}{START}assistant\n", answer.partition(STOP)[0]))
    return found


@torch.inference_mode()
def answers(model: torch.nn.Module, held: RowMaker, read: list[str], device: str) -> list[tuple[str, float, float]]:
    """Greedy answers, with nats a token and the chance of the first token of `NOT_SAID`."""
    rows, unsaid = [held.encode(text) for text in read], held.encode(NOT_SAID)[0]
    order, found = sorted(range(len(rows)), key=lambda at: len(rows[at])), [("", 0.0, 0.0)] * len(rows)
    for start in range(0, len(order), AT_ONCE):
        own = order[start : start + AT_ONCE]
        length = max(len(rows[at]) for at in own)
        ids = torch.tensor([[2] * (length - len(rows[at])) + rows[at] for at in own], device=device)
        mask = torch.tensor([[0] * (length - len(rows[at])) + [1] * len(rows[at]) for at in own], device=device)
        made = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False,
                              pad_token_id=2, eos_token_id=2, return_dict_in_generate=True, output_logits=True)
        sure = model.compute_transition_scores(made.sequences, made.logits, normalize_logits=True)
        chance = made.logits[0].float().softmax(-1)[:, unsaid].tolist()
        for at, row, nats, none in zip(own, made.sequences[:, length:].tolist(), sure.float(), chance, strict=True):
            size = row.index(2) + 1 if 2 in row else len(row)
            found[at] = held.encoder.decode(row, skip_special_tokens=True), -float(nats[:size].mean()), none
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--from", dest="source", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="answers (.json)")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--four-bits", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = answering(options.source, options.base, device, options.four_bits)
    held, told = RowMaker(options.data, str(options.tokenizer), 5, held=True), []
    held.as_found = True
    for asks, document, shown in (("words", 0.0, 1), ("words", 0.0, 3), ("words", 1.0, 3), ("brief", 0.0, 1),
                                  ("summary", 0.0, 1)):
        held.counts = (shown,)
        asked = prompts(held, asks, options.count if asks == "words" and not document else options.count // 3, document)
        written = answers(model, held, [read for read, _ in asked], device)
        told += [{"asks": asks, "document": bool(document), "shown": shown, "read": read[-6000:], "wanted": wanted,
                  "written": answer, "nats": nats, "unsaid": none}
                 for (read, wanted), (answer, nats, none) in zip(asked, written, strict=True)]
    options.out.write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")
    numbers = [one for one in told if "[" in one["wanted"]]
    same = np.mean([one["written"].rpartition(" ")[2] == one["wanted"].rpartition(" ")[2] for one in numbers])
    print(f"{len(told)} answers; the same passages named in {same:.2f} of {len(numbers)}", flush=True)


if __name__ == "__main__":
    main()
