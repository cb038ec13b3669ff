#!/usr/bin/env python3
"""Makes tests/fixtures/chat/answers.json: what transformers renders of each prefix of a conversation.

    tools/make_answer_goldens.py TEMPLATES      TEMPLATES: a folder of NAME.jinja

For templates whose prefixes do not begin one another: for each answer the messages before it with the
generation prompt, and the messages up to it without. Needs transformers (5.24.0 made the file).
"""

import json
import sys
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

NAMES = ["deepseek-r1-distill-qwen", "gemma-4-it", "olmo3-instruct", "phi-3-mini", "qwen3", "qwen3.5"]
CONVERSATION = [
    {"role": "user", "content": "Two and two?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "<b>Grüße</b>?"},
    {"role": "assistant", "content": "<i>Zurück</i>"},
    {"role": "user", "content": "And now?"},
    {"role": "assistant", "content": "The end 🙂"},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(template: str, messages: list, prompt: bool) -> str:
    texts, _ = render_jinja_template([messages], chat_template=template, add_generation_prompt=prompt, **TOKENS)
    return texts[0]


def main() -> None:
    out = {"messages": CONVERSATION, "tokens": TOKENS, "templates": {}}
    for name in NAMES:
        template = (Path(sys.argv[1]) / f"{name}.jinja").read_text()
        out["templates"][name] = [
            {"prompt": render(template, CONVERSATION[:i], True), "text": render(template, CONVERSATION[: i + 1], False)}
            for i in range(1, len(CONVERSATION), 2)
        ]
    path = Path(__file__).parent.parent / "tests/fixtures/chat/answers.json"
    path.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
