"""A fine-tune with transformers' Trainer, whose `optimizers=` takes octet.optim.AdamW.

    python examples/transformers_trainer.py [--model FOLDER] [--steps 20] [--coat]

Without --model a tiny Llama of random weights is trained on this file's bytes. --coat: its layers multiply in 8 bits and keep their
activations in 8 bits, too (octet.torch.coat), for models of Llama's kind.
"""

import argparse
import tempfile

import octet
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Windows(torch.utils.data.Dataset):
    """This file's bytes, 32 tokens at a time."""

    def __init__(self):
        with open(__file__, "rb") as file:
            self.tokens = torch.tensor(list(file.read()))

    def __len__(self):
        return len(self.tokens) // 32

    def __getitem__(self, index):
        ids = self.tokens[32 * index:32 * index + 32]
        return {"input_ids": ids, "labels": ids}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--coat", action="store_true")
    flags = parser.parse_args()
    torch.manual_seed(1)
    if flags.model:
        model = AutoModelForCausalLM.from_pretrained(flags.model, dtype=torch.bfloat16)
    else:
        model = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                             num_attention_heads=4))
    if flags.coat:
        octet.torch.coat(model.to(torch.bfloat16))
    optimizer = octet.optim.AdamW(model.named_parameters(), lr=1e-3, weight_decay=0.1, clip=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    with tempfile.TemporaryDirectory() as folder:
        # The step clips: max_grad_norm=0 leaves gradients as they are.
        arguments = TrainingArguments(output_dir=folder, max_steps=flags.steps, per_device_train_batch_size=8,
                                      max_grad_norm=0, logging_steps=5, save_strategy="no", report_to=[], use_cpu=True)
        trainer = Trainer(model=model, args=arguments, train_dataset=Windows(), optimizers=(optimizer, schedule))
        result = trainer.train()
    print(f"mean loss {result.training_loss:.4f} over {flags.steps} steps")


if __name__ == "__main__":
    main()
