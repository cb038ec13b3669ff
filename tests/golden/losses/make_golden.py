#!/usr/bin/python3
"""Writes losses.json beside itself: losses of models by PyTorch, in f64, with their gradients.

Each case: the loss (nn/losses/list.h) and its options, rows and tokens a row, the model's output that it reads and the
inputs that it declares, as [shape, numbers]; then what PyTorch makes of them: the loss over all items that count, each
item's metrics, and the gradient of the output. Usage: make_golden.py, with PyTorch installed.
"""
import json
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(7)
IGNORED = -1


def table(x):
    return [list(x.shape), [round(v, 9) for v in x.flatten().tolist()]]


def case(loss, value, output, metrics, inputs, n, **rest):
    """`value` is the sum over the items."""
    mean = value / n
    (gradient,) = torch.autograd.grad(mean, output)
    return {"loss": loss, **rest, "n": n, "output": table(output), "inputs": {k: table(v) for k, v in inputs.items()},
            "value": mean.item(), "metrics": {k: table(v.double()) for k, v in metrics.items()},
            "gradient": table(gradient)}


def tensor(*shape, scale=2.0):
    # Six digits, so that the file says what PyTorch saw.
    x = (torch.randn(*shape, dtype=torch.float64) * scale * 1e6).round() / 1e6
    return x.requires_grad_()


def tokens(loss):
    x, labels = tensor(2 * 5, 11), torch.randint(0, 11, (2 * 5,))
    labels[3] = labels[9] = IGNORED
    nll = F.cross_entropy(x, labels, ignore_index=IGNORED, reduction="none")
    return case(loss, nll.sum(), x, {"nll": nll}, {"labels": labels}, 8, rows=2, seq=5)


def classes(smoothing):
    x, labels = tensor(6, 5), torch.tensor([4, 0, IGNORED, 2, 2, 1])
    options = {"ignore_index": IGNORED, "reduction": "none"}
    loss = F.cross_entropy(x, labels, label_smoothing=smoothing, **options)
    nll = F.cross_entropy(x, labels, **options)
    return case("classes", loss.sum(), x, {"nll": nll, "correct": x.argmax(1) == labels}, {"labels": labels}, 5,
                rows=6, seq=1, smoothing=smoothing)


def span():
    rows, seq = 4, 6
    x = tensor(rows * seq, 2)
    start, end = torch.tensor([1, 5, IGNORED, 0]), torch.tensor([3, 5, IGNORED, 2])
    by_token = x.reshape(rows, seq, 2)
    nll = sum(F.cross_entropy(by_token[:, :, i], at, ignore_index=IGNORED, reduction="none") / 2
              for i, at in enumerate((start, end)))
    exact = (by_token[:, :, 0].argmax(1) == start) & (by_token[:, :, 1].argmax(1) == end)
    return case("span", nll.sum(), x, {"nll": nll, "exact": exact},
                {"start_positions": start, "end_positions": end}, 3, rows=rows, seq=seq)


def regression():
    x, targets = tensor(5, 1), tensor(5).detach()
    error = F.mse_loss(x[:, 0], targets, reduction="none")
    return case("regression", error.sum(), x, {"squared_error": error, "prediction": x[:, 0]}, {"targets": targets}, 5, rows=5,
                seq=1)


def multi_label():
    x, targets = tensor(4, 5), torch.tensor([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0.25, 0, 0, 0.75], [1] * 5])
    with torch.no_grad():
        x[0, 0] = 0  # the kink of |x|, and no label
    nll = F.binary_cross_entropy_with_logits(x, targets.double(), reduction="none").flatten()
    correct = ((x > 0) == (targets > 0.5)).flatten()
    return case("multi_label", nll.sum(), x, {"nll": nll, "correct": correct, "logit": x.flatten()}, {"targets": targets}, 20,
                rows=4, seq=1)


def contrastive(temperature, fillers=None):
    """Rows 2i and 2i + 1 belong together; pairs with a 1 in `fillers` are candidates of themselves alone."""
    x = tensor(8, 6)  # rows 2i and 2i + 1 belong together
    unit = F.normalize(x, dim=1)
    scores = unit[0::2] @ unit[1::2].T / temperature
    at = torch.arange(4)
    if fillers is not None:
        scores = scores.masked_fill(fillers.bool() & ~torch.eye(4).bool(), -torch.inf)
    nll = F.cross_entropy(scores, at, reduction="none")
    return case("contrastive", nll.sum(), x, {"nll": nll, "correct": scores.argmax(1) == at},
                {} if fillers is None else {"fillers": fillers}, 4, rows=8, seq=1, temperature=temperature)


def negatives(temperature, n):
    """MultipleNegativesRankingLoss: rows (2 + n) i and behind it belong together, the next n do not; all of them are candidates."""
    x = tensor(3 * (2 + n), 6)
    unit = F.normalize(x, dim=1)
    anchors, others = unit[0::2 + n], torch.cat([unit[k::2 + n] for k in range(1, 2 + n)])
    scores = anchors @ others.T / temperature
    at = torch.arange(3)
    nll = F.cross_entropy(scores, at, reduction="none")
    return case("contrastive", nll.sum(), x, {"nll": nll, "correct": scores.argmax(1) == at}, {}, 3, rows=3 * (2 + n), seq=1,
                temperature=temperature, negatives=n)


def pairwise(beta):
    """Rafailov et al. 2023, equation 7; rows 2i are chosen, rows 2i + 1 rejected."""
    rows, seq, vocab = 4, 5, 7
    x, labels = tensor(rows * seq, vocab), torch.randint(0, vocab, (rows * seq,))
    labels[0] = labels[7] = labels[8] = IGNORED
    reference = tensor(rows).detach() + 9
    own = F.cross_entropy(x, labels, ignore_index=IGNORED, reduction="none").reshape(rows, seq).sum(1)
    gain = reference - own
    margin = beta * (gain[0::2] - gain[1::2])
    loss = -F.logsigmoid(margin)
    return case("pairwise", loss.sum(), x, {"pair_loss": loss, "margin": margin, "correct": margin > 0},
                {"labels": labels, "reference_nll": reference}, 2, rows=rows, seq=seq, beta=beta)


cases = [tokens("next_token"), tokens("masked_token"), classes(0.0), classes(0.1), span(), regression(),
         contrastive(0.05), contrastive(0.5), pairwise(0.1), pairwise(1.0), multi_label(),
         contrastive(0.5, torch.tensor([0.0, 1.0, 0.0, 1.0])), negatives(0.5, 1), negatives(0.05, 3)]
path = pathlib.Path(__file__).with_name("losses.json")
path.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
