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


def log1mexp(x):
    """log(1 - exp(x)), x below 0."""
    return torch.log(-torch.expm1(x))


def preference(loss, beta, smoothing=0.0, gamma=0.5):
    """Ten pairs by the formulas of TRL 1.16's DPOTrainer (sigmoid, ipo), CPOTrainer (simpo, cpo_alpha 0) and ORPOTrainer, whose
    cross entropy is here the mean of the answer's tokens."""
    rows, seq, vocab = 20, 4, 5
    x, labels = tensor(rows * seq, vocab), torch.randint(0, vocab, (rows * seq,))
    labels[torch.rand(rows * seq) < 0.3] = IGNORED
    labels.reshape(rows, seq)[:, 1] = 2  # one counts in each row
    with torch.no_grad():
        x.reshape(rows, seq, vocab)[0] = 0
        x.reshape(rows, seq, vocab)[0, torch.arange(seq), labels[:seq].clamp(min=0)] = 9  # next to no doubt: orpo's small a
    sums = -F.cross_entropy(x, labels, ignore_index=IGNORED, reduction="none").reshape(rows, seq).sum(1)
    lengths = (labels != IGNORED).reshape(rows, seq).sum(1)
    inputs = {"labels": labels}
    if loss in ("dpo", "ipo"):
        inputs["reference_nll"] = (tensor(rows).detach() + 6)
        ratios = sums + inputs["reference_nll"]
        rewards = beta * ratios
    else:
        rewards = beta * sums / lengths
    c, r = rewards[0::2], rewards[1::2]
    averages = sums / lengths

    def sigmoid(z):
        return -F.logsigmoid(z) * (1 - smoothing) - F.logsigmoid(-z) * smoothing

    if loss == "dpo":
        value = sigmoid(beta * (ratios[0::2] - ratios[1::2]))
    elif loss == "ipo":
        score = ratios / lengths
        value = (score[0::2] - score[1::2] - 1 / (2 * beta)) ** 2
    elif loss == "simpo":
        value = sigmoid(beta * (averages[0::2] - averages[1::2] - gamma / beta))
    else:
        odds = averages[0::2] - averages[1::2] - (log1mexp(averages[0::2]) - log1mexp(averages[1::2]))
        value = -averages[0::2] - beta * F.logsigmoid(odds)
    metrics = {"pair_loss": value, "reward_chosen": c, "reward_rejected": r, "margin": c - r, "correct": c > r,
               "chosen_nll": -sums[0::2], "rejected_nll": -sums[1::2]}
    return case(loss, value.sum(), x, metrics, inputs, 10, rows=rows, seq=seq, beta=beta, smoothing=smoothing, gamma=gamma)


cases = [tokens("next_token"), tokens("masked_token"), classes(0.0), classes(0.1), span(), regression(),
         contrastive(0.05), contrastive(0.5), pairwise(0.1), pairwise(1.0), multi_label(),
         contrastive(0.5, torch.tensor([0.0, 1.0, 0.0, 1.0])), negatives(0.5, 1), negatives(0.05, 3),
         preference("dpo", 0.1), preference("dpo", 0.5, smoothing=0.2), preference("ipo", 0.1), preference("simpo", 2.0, gamma=1.0),
         preference("simpo", 0.3, smoothing=0.1), preference("orpo", 0.1)]
path = pathlib.Path(__file__).with_name("losses.json")
path.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
