#!/usr/bin/env bash
# The learning rate of transformers' cosine schedule behind its last step, as a run that goes on has it.
# guess: it stays 0, as that of the linear schedule does.
# seen:  transformers 5.24.0 goes on along the cosine: half the rate after half as many steps more, and all of it after twice the steps
#        of the schedule. Those with restarts, linear and polynomial, stay at their end.
. "$(dirname "$0")/common.sh"
with_packages transformers==5.24.0 torch==2.15.0 numpy==2.4.6 <<'END'
import torch
import transformers as t

seen = {}
for name in ("cosine", "linear", "polynomial_decay", "cosine_with_hard_restarts"):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    make = getattr(t, f"get_{name}_schedule_with_warmup")
    schedule, rates = make(optimizer, num_warmup_steps=0, num_training_steps=10), []
    for _ in range(21):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    seen[name] = [round(rates[step], 3) for step in (5, 10, 15, 20)]
    print(f"{name}: rates at steps 5, 10, 15 and 20 of a schedule of 10 steps: {seen[name]}")
raise SystemExit(seen["cosine"] != [0.5, 0, 0.5, 1] or any(seen[name][1:] != [0, 0, 0] for name in seen if name != "cosine"))
END
