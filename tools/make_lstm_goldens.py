#!/usr/bin/env python3
"""Fixtures of lstm_seq2seq: PyTorch's nn.LSTM over packed sequences, Luong's attention, their logits and gradients.

    tools/make_lstm_goldens.py FOLDER    writes FOLDER/lstm_seq2seq.safetensors and FOLDER/lstm_seq2seq_three.safetensors

Tensors and metadata are those of tools/make_encoder_goldens.py. Needs torch and safetensors; only tests/golden/encoders reads the
files.
"""

import json
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CASES = {
    "lstm_seq2seq": {"vocab_size": 31, "hidden_size": 12, "num_layers": 2, "num_attention_heads": 1, "source_positions": 9,
                     "tie_word_embeddings": True},
    "lstm_seq2seq_three": {"vocab_size": 29, "hidden_size": 12, "num_layers": 3, "num_attention_heads": 3, "source_positions": 8,
                           "tie_word_embeddings": False},
}
BATCH, SEQ = 3, 10


class LstmSeq2Seq(torch.nn.Module):
    def __init__(self, vocab_size, hidden_size, num_layers, num_attention_heads, tie_word_embeddings, **_):
        super().__init__()
        self.heads = num_attention_heads
        self.shared = torch.nn.Embedding(vocab_size, hidden_size)
        self.encoder = torch.nn.ModuleList(torch.nn.LSTM(hidden_size, hidden_size, batch_first=True) for _ in range(num_layers))
        self.decoder = torch.nn.ModuleList(torch.nn.LSTM(hidden_size * (1 if i == 0 else 2), hidden_size, batch_first=True)
                                           for i in range(num_layers))
        self.query = torch.nn.Linear(hidden_size, hidden_size, bias=False)
        self.head = None if tie_word_embeddings else torch.nn.Linear(hidden_size, vocab_size, bias=False)

    def attended(self, x, source, mask):
        def split(y):
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        scores = split(self.query(x)) @ split(source).transpose(2, 3)
        scores = scores.masked_fill(~mask[:, None, None, :], -math.inf)
        return (scores.softmax(-1) @ split(source)).transpose(1, 2).flatten(2)

    def forward(self, source, lengths, tokens):
        n = source.shape[1]
        x, states = self.shared(source), []
        for i, layer in enumerate(self.encoder):
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            y, last = layer(packed)
            y = pad_packed_sequence(y, batch_first=True, total_length=n)[0]
            x = y if i < 2 else x + y
            states.append(last)
        source, mask = x, torch.arange(n)[None, :] < lengths[:, None]
        x = self.shared(tokens)
        for i, layer in enumerate(self.decoder):
            y = layer(x if i == 0 else torch.cat([x, context], -1), states[i])[0]
            x = y if i < 2 else x + y
            if i == 0:
                context = self.attended(x, source, mask)
        return x @ (self.shared if self.head is None else self.head).weight.T


def named(model, value_of):
    """Octet's names of the parameters."""
    tensors = {"shared.weight": model.shared.weight, "decoder.layers.0.attention.query.weight": model.query.weight}
    if model.head is not None:
        tensors["lm_head.weight"] = model.head.weight
    for stack in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(model, stack)):
            for key, part in (("weight_ih_l0", "ih.weight"), ("bias_ih_l0", "ih.bias"), ("weight_hh_l0", "hh.weight"),
                              ("bias_hh_l0", "hh.bias")):
                tensors[f"{stack}.layers.{i}.{part}"] = getattr(layer, key)
    return {name: value_of(tensor) for name, tensor in tensors.items()}


def make(name):
    torch.manual_seed(len(name))
    fields = CASES[name]
    model = LstmSeq2Seq(**fields)
    n = fields["source_positions"]
    source, tokens = torch.randint(0, fields["vocab_size"], (BATCH, n)), torch.randint(0, fields["vocab_size"], (BATCH, SEQ))
    lengths = torch.tensor([n, n - 4, 1])
    output = model(source, lengths, tokens)
    dout = torch.randn_like(output)
    (output * dout).sum().backward()
    tensors = {"output": output, "dout": dout, "i:source": source.int(), "i:source_length": lengths.int(), "i:tokens": tokens.int(),
               "i:positions": torch.arange(SEQ).repeat(BATCH, 1).int()}
    tensors |= {"w:" + key: value for key, value in named(model, lambda one: one).items()}
    tensors |= {"g:" + key: value for key, value in named(model, lambda one: one.grad).items()}
    config = {"model_type": "lstm_seq2seq", "architectures": ["LstmSeq2Seq"], "is_encoder_decoder": True, "decoder_start_token_id": 0,
              "max_position_embeddings": 24, **fields}
    meta = {"config": json.dumps(config), "batch": str(BATCH), "seq": str(SEQ)}
    return {key: value.detach().clone().contiguous() for key, value in tensors.items()}, meta


def main():
    folder = pathlib.Path(sys.argv[1])
    for name in CASES:
        tensors, meta = make(name)
        save_file(tensors, folder / f"{name}.safetensors", metadata=meta)
        print(name, sum(value.nbytes for value in tensors.values()))


if __name__ == "__main__":
    main()
