"""A trained model under another vocabulary: the layers stay, every new piece begins as the mean of its old pieces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from training.model import Llama, ModelShape
from training.quantise import load_model
from training.text import USER_PIECES, Encoder


def transfer_embedding(old: Tensor, before: Encoder, after: Encoder) -> Tensor:
    """The embedding [new pieces, hidden] that stands for the same texts as `old` [old pieces, hidden]."""
    pieces = after.pieces
    new = torch.empty(pieces.get_piece_size(), old.shape[1])
    for number in range(len(new)):
        piece = pieces.id_to_piece(number)
        known = before.pieces.piece_to_id(piece)
        special = pieces.is_control(number) or pieces.is_byte(number) or piece in USER_PIECES
        if special or (known != before.pieces.unk_id() and before.pieces.id_to_piece(known) == piece):
            new[number] = old[known]
        else:
            new[number] = old[before.pieces.encode(piece.replace("\u2581", " "))].mean(0)
    return new


def continue_from(source: Path, source_tokenizer: Path | None, tokenizer: Path, shape: ModelShape) -> Llama:
    """The model of a checkpoint or int8 folder, with the positions of `shape` and the pieces of `tokenizer`."""
    trained = load_model(source)
    state = trained.state_dict()
    after = Encoder(tokenizer)
    if source_tokenizer:
        name = "model.embed_tokens.weight"
        state[name] = transfer_embedding(state[name], Encoder(source_tokenizer), after)
    size = after.pieces.get_piece_size()
    model = Llama(replace(trained.shape, vocabulary=size, max_positions=shape.max_positions))
    model.load_state_dict(state)
    return model.train()
