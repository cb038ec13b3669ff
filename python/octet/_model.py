"""octet.load."""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from . import _checks
from ._arrays import adopt
from ._error import Error


def load(path, *, tokenizer=None, recipe: str | None = None, context: int = 0, device: str = "cpu", threads: int = 0,
         isa: str = "auto") -> Model:
    """A trained model: a run of ours (its newest whole checkpoint), RUN/ckpt/step-N, or a Hugging Face folder.

    tokenizer: "bytes", a file or a folder; without it the model's own.  recipe: its precision; without it the run's (bf16 to
    generate where it has 8-bit operands), fp32 for a folder.  context: most tokens of a text; 0: the model's.
    Weights are read when they are first needed. Raises octet.Error.
    """
    return Model(path, tokenizer=tokenizer, recipe=recipe, context=context, device=device, threads=threads, isa=isa)


class Model:
    """A loaded model. Calls of several threads are queued; the interpreter's lock is released while it computes. A forked child goes
    on with a model on the CPU.

    kind, vocab, context (most tokens of a text), parameters (how many), recipe, tokenizer, folder say what it is.
    weights: arrays by the names of Hugging Face.
    """

    def __init__(self, path, *, tokenizer, recipe, context, device, threads, isa):
        from . import _native, _program
        _program.check_machine(device, isa, threads)
        _checks.path("model", path=path, **({} if tokenizer is None else {"tokenizer": tokenizer}))
        if recipe is not None:
            _checks.text("model", recipe=recipe)
        if isinstance(context, bool) or not isinstance(context, numbers.Integral) or not 0 <= context < 2**63:
            raise Error(f"[model] context: expected a number of tokens, or 0 for the model's, got {context!r}")
        module = _program.cuda_module() if device == "cuda" else ""
        machine = _native.Machine(device, isa, threads, module)
        call = _native.ModelCall(os.fspath(path), os.fspath(tokenizer or ""), recipe or "", context)
        self._native = _native.load(call, machine)
        for name, value in self._native.facts().items():
            setattr(self, name, value)
        self.weights = Weights(self._native)

    def __repr__(self):
        return f"octet.load({self.folder!r})  # {self.kind}, {self.parameters / 1e6:.2f} M parameters"

    def tokens(self, text: str | bytes) -> np.ndarray:
        """The ids of a text, int32 [T], without what the tokenizer's file puts around texts."""
        return np.array(self._native.tokens_of(text), np.int32)

    def logits(self, tokens) -> np.ndarray:
        """The logits behind each token.

        tokens: ids [T] or [B, T], or text. At most `context` of a row.
        Returns float32 [T, vocab] or [B, T, vocab]. In fp32 and bf16 on the CPU a row's bits do not depend on the others.
        """
        ids = self._ids(tokens)
        out = np.empty((*ids.shape, self.vocab), np.float32)
        for row, result in [(ids, out)] if ids.ndim == 1 else zip(ids, out):
            self._native.logits(row, result)
        return out

    def nll(self, text, *, batch: int = 8, seq: int = 0) -> float:
        """Mean negative log-likelihood of a text, nats a token: what `octet eval --tasks nll` says of a file of it.

        text: text, or ids [T]; it is read in windows of `seq` tokens (0: the model's, at most 2048), each token but the first
        predicted once.
        """
        ids = self._ids(text)
        if ids.ndim != 1:
            raise Error(f"[model] expected one text of ids [T], got shape {list(ids.shape)}")
        batch, seq = _checks.integer("model", "batch", batch, 1), _checks.integer("model", "seq", seq, 0)
        total, count = self._native.nll(ids, batch, seq)
        return total / count

    def generate(self, prompt, max_tokens: int = 100, *, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0,
                 min_p: float = 0.0, repetition_penalty: float = 1.0, seed: int = 1, stop=(), batch: int = 0, on_text=None):
        """The prompt and what the model adds to it, as `octet generate` prints it.

        prompt: a text, or a list of them, `batch` at a time (0: all).  temperature: 0: always the most probable token, which no
            top_k, top_p and min_p change: beside it they are errors; a seed changes nothing.
        stop: texts that end it.  on_text: called with (index, text) as new text comes.
        Returns a text, or a list of them.
        """
        from . import _native
        prompts = _texts("prompt", prompt, (str, bytes))
        stops = _texts("stop", stop, str)
        max_tokens, batch, top_k, seed = (
            _checks.integer("model", name, value, 0, most)
            for name, value, most in (("max_tokens", max_tokens, 2**63 - 1), ("batch", batch, 2**63 - 1), ("top_k", top_k, 2**63 - 1),
                                      ("seed", seed, 2**32 - 1)))
        temperature, top_p, min_p, repetition_penalty = (
            _checks.number("model", name, value)
            for name, value in (("temperature", temperature), ("top_p", top_p), ("min_p", min_p), ("repetition_penalty", repetition_penalty)))
        if on_text is not None:
            _checks.function("model", on_text=on_text)
        for name, value, usual in (("top_k", top_k, 0), ("top_p", top_p, 1), ("min_p", min_p, 0)):
            if temperature == 0 and value != usual:
                raise Error(f"[model] {name}: expected a temperature above 0 beside it, got {value!r} for the most probable tokens")
        call = _native.GenerateCall(max_tokens, batch or max(1, len(prompts)), stops, temperature, top_k, top_p, min_p,
                                    repetition_penalty, seed)
        shown = on_text and (lambda index, text: on_text(index, text.decode(errors="replace")))
        texts = [(said + added).decode(errors="replace")
                 for said, added, _, _ in self._native.generate(prompts, call, shown)]
        return texts[0] if isinstance(prompt, (str, bytes)) else texts

    def translate(self, source, *, max_tokens: int | None = None, beams: int = 0, length_penalty: float | None = None,
                  early_stopping: str | None = None, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0,
                  min_p: float = 0.0, seed: int = 1, source_prefix: str | None = None, batch: int = 0):
        """What a model that translates (t5, mt5, marian, lstm_seq2seq) writes about a source: `octet generate --sources`.

        source: a text, or a list of them, `batch` at a time (0: all).  beams: of a search; 1: none.  length_penalty: sums of log
            probabilities over length^penalty.  early_stopping: "no", "yes" or "never".  source_prefix: a text before each source;
            None: the run's.
        beams of 0, and None: what the model's files say, else no search, 1, "no" and 200 new tokens or as many as have positions.
        Returns a text, or a list of them.
        """
        from . import _native
        sources = _texts("source", source, str)
        numbers_of = {"beams": (beams, 64), "top_k": (top_k, 2**63 - 1), "seed": (seed, 2**32 - 1), "batch": (batch, 2**63 - 1)}
        beams, top_k, seed, batch = (_checks.integer("model", name, value, 0, most) for name, (value, most) in numbers_of.items())
        if max_tokens is not None:
            max_tokens = _checks.integer("model", "max_tokens", max_tokens, 1)
        if length_penalty is not None:
            length_penalty = _checks.number("model", "length_penalty", length_penalty)
        temperature, top_p, min_p = (_checks.number("model", name, value)
                                     for name, value in (("temperature", temperature), ("top_p", top_p), ("min_p", min_p)))
        if early_stopping not in (None, "no", "yes", "never"):
            raise Error(f"[model] early_stopping: expected no, yes or never, got {early_stopping!r}")
        if source_prefix is not None:
            _checks.text("model", source_prefix=source_prefix)
        call = _native.TranslateCall(max_tokens, beams, length_penalty, early_stopping or "", temperature, top_k, top_p, min_p, seed,
                                     source_prefix, batch or max(1, len(sources)))
        texts = [text.decode(errors="replace") for text in self._native.translate(sources, call)]
        return texts[0] if isinstance(source, str) else texts

    def _ids(self, tokens) -> np.ndarray:
        if isinstance(tokens, (str, bytes)):
            return self.tokens(tokens)
        ids = adopt(tokens)
        if ids.ndim not in (1, 2) or ids.dtype.kind not in "iu":
            raise Error(f"[model] expected text, or integers [T] or [B, T], got {ids.dtype.name} {list(ids.shape)}")
        if ids.size and (ids.min() < 0 or ids.max() >= self.vocab):
            wrong = int(ids.min() if ids.min() < 0 else ids.max())
            raise Error(f"[model] expected tokens in [0, {self.vocab}), got {wrong}")
        return np.require(ids, np.int32, ["C", "A"])


def _texts(name: str, given, types) -> list:
    """One text, or a list of them, as a list."""
    texts = [given] if isinstance(given, types) or not isinstance(given, Iterable) else list(given)
    for text in texts:
        if not isinstance(text, types):
            raise Error(f"[model] {name}: expected a text or a list of them, got {type(text).__name__}")
    return texts


class Weights(Mapping):
    """Weights by name, each an array that exports DLPack (torch.from_dlpack, numpy.from_dlpack) and shares its memory.

    As they are stored: f32, bf16 or f16; what is stored in 8 bits as f32, q * scale. `numpy(name)` gives one as float32.
    """

    def __init__(self, native):
        self._native = native
        self._names = native.weight_names()

    def __getitem__(self, name: str):
        if name not in self._names:
            raise KeyError(name)
        return self._native.weight(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def numpy(self, name: str) -> np.ndarray:
        """The weight as float32."""
        return self._native.weight_f32(name)
