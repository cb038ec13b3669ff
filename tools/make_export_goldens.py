#!/usr/bin/env python3
"""Writes tests/fixtures/chat/exports.json: what transformers renders from the exports of runs.

    tools/make_export_goldens.py [PROGRAM]      PROGRAM: build/octet

A tiny model is trained for a step with each of five chat templates; AutoTokenizer reads the export, and
apply_chat_template gives text and ids. The file holds the model's files, and of each export the files that say
how it talks, so that a test knows that it compares the same. Needs torch and transformers (5.24.0 made the file).
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parent.parent
SPECIAL = ["<s>", "</s>", "<|eot|>", "<|im_start|>", "<|im_end|>"]
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"},
        {"role": "user", "content": "And?"}, {"role": "assistant", "content": "Né <b>😀"}]
OWN = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|eot|>\n{% endfor %}"
       "{% if add_generation_prompt %}<|assistant|>{% endif %}")
FILES = {
    "turns": "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
             "{% if add_generation_prompt %}assistant: {% endif %}",
    # What training templates have: blocks of the model's own words, macros, a namespace.
    "blocks": "{%- set ns = namespace(n=0) -%}\n{%- macro head(role) %}<|im_start|>{{ role | trim }}\n{% endmacro -%}\n"
              "{{- bos_token }}\n{%- for m in messages %}\n    {%- set ns.n = ns.n + 1 %}\n    {{- head(m['role']) }}\n"
              "    {%- if m['role'] == 'assistant' %}\n        {%- generation %}{{ m['content'] | trim + '<|im_end|>' }}"
              "{% endgeneration %}\n    {%- else %}\n        {{- m['content'] | trim ~ '<|im_end|>' }}\n    {%- endif %}\n"
              "    {{- '\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- head('assistant') }}\n{%- endif %}",
}


def tokenizer_json():
    vocab, n_unprintable = {}, 0
    for byte in range(256):
        printable = 32 < byte < 127 or (byte > 160 and byte != 173)
        vocab[chr(byte if printable else 256 + n_unprintable)] = byte
        n_unprintable += not printable
    flags = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    added = [{"id": 256 + i, "content": text} | flags for i, text in enumerate(SPECIAL)]
    vocab |= {token["content"]: token["id"] for token in added}
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "decoder": level,
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}}},
        "model": {"type": "BPE", "vocab": vocab, "merges": []}}, ensure_ascii=False)


def main():
    program = str(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/octet").resolve())
    files = {"tokenizer.json": tokenizer_json(), "chat_template.jinja": OWN,
             "tokenizer_config.json": json.dumps({"bos_token": "<s>", "eos_token": "</s>"}),
             "generation_config.json": json.dumps({"eos_token_id": [257, 258]})}
    golden = {"messages": TALK, "files": files, "cases": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        LlamaForCausalLM(LlamaConfig(vocab_size=261, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                                     max_position_embeddings=256)).save_pretrained(folder / "model")
        for file, text in files.items():
            (folder / "model" / file).write_text(text)
        (folder / "talks.jsonl").write_text((json.dumps({"messages": TALK}) + "\n") * 2)
        for template in ["auto", "chatml", "plain", *FILES]:
            if template in FILES:
                (folder / f"{template}.jinja").write_text(FILES[template])
            chosen = f"{template}.jinja" if template in FILES else template
            subprocess.run([program, "train", "--model", "model", "--data", "talks.jsonl", "--recipe", "fp32", "--overwrite", "--quiet",
                            "--out", "run", "--set", "train.steps=1", "--set", "data.val_fraction=0.5", "--set",
                            "train.tensorboard=false", "--set", f"data.chat.template={chosen}"], cwd=folder, check=True)
            tokenizer = AutoTokenizer.from_pretrained(folder / "run/export")
            said = {file: (folder / "run/export" / file).read_text() for file in ("chat_template.jinja", "tokenizer_config.json")}
            golden["cases"].append({
                "name": template, "template": FILES.get(template), "files": said,
                "text": tokenizer.apply_chat_template(TALK, tokenize=False),
                "ids": tokenizer.apply_chat_template(TALK, tokenize=True, return_dict=False),
                "prompt": tokenizer.apply_chat_template(TALK[:3], tokenize=False, add_generation_prompt=True)})
    text = json.dumps(golden, ensure_ascii=False)
    (ROOT / "tests/fixtures/chat/exports.json").write_text(text.replace('{"name"', '\n{"name"') + "\n")


if __name__ == "__main__":
    main()
