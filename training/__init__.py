"""How the built-in pair of models was made: tokenizer, rows, training, distillation, int8 files, measurements."""
