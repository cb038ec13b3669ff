#!/usr/bin/env python3
"""Conversations and questions about MNIST and CIFAR-10 pictures, with all that a run on them needs; the same files for a seed on every machine.

    tools/make_picture_questions.py DATA OUT [--train 2000] [--test 300] [--types digit class ...] [--seed 1]

DATA holds mnist/ and cifar10/ (IDX files, CIFAR's test records and a pack of JPEG pictures). Into OUT go
    pictures/*.png, *.jpg  the pictures, as they are
    train.jsonl, val.jsonl conversations: {"messages": [...], "images": [...]}, of one picture or of two
    questions.jsonl        held-out pictures in four held-out phrasings of each type: {"images", "question", "answer", "type"} for `octet eval --tasks vqa:FILE`
    tokenizer.json         bytes; <image>, <|im_start|> and <|im_end|>, tokens 256 to 258; and the words of questions and answers; 512 are enough
Only the standard library.
"""

import argparse
import gzip
import json
import lzma
import random
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import papers_data

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
ANIMALS = {"bird", "cat", "deer", "dog", "frog", "horse"}
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class Forms(NamedTuple):
    trained: list
    held_out: list


# Forms of questions: no conversation has one that is held out for questions.jsonl, though others have each of its words. Types share their forms and how
# these end, so that a word says what is asked and not the form. Held-out forms are several, so that a score does not hang on how a model takes one of them.
NAME = Forms(["Which {x} is this?", "What {x} do you see?", "Name the {x} in the {picture}.", "Say which {x} is in this {picture}.", "Tell me the {x}.",
              "Which {x} is in the {picture}?", "What {x} is in this {picture}?", "Say what {x} you see."],
             ["What {x} does the {picture} show?", "What {x} is this?", "Tell me which {x} is in this {picture}.", "Which {x} do you see in the {picture}?"])
IS_IT = Forms(["Is this an {x}?", "Do you see an {x} in the {picture}?", "Does the {picture} show an {x}?", "Say if this is an {x}.",
               "Is there an {x} in this {picture}?", "Tell me if you see an {x}.", "Do you see an {x}?", "Say if there is an {x} in the {picture}."],
              ["Tell me if there is an {x}.", "Does this {picture} show an {x}?", "Is there an {x} in the {picture}?", "Say if you see an {x} in the {picture}."])
COUNT = Forms(["How many {x}s are there?", "How many {x}s do you see?", "Count the {x}s in the {picture}s.", "Tell me how many {x}s you see.",
               "Say how many {x}s there are.", "How many {x}s are in the {picture}s?", "Count the {x}s.", "Tell me how many {x}s are in the {picture}s."],
              ["How many {x}s do the {picture}s show?", "How many {x}s do you see in the {picture}s?", "Say how many {x}s you see.",
               "Tell me how many {x}s there are."])
COMPARE = Forms(["Which {x} is larger, the first or the second?", "Is the first or the second {x} larger?", "Say which {x} is larger, first or second.",
                 "Tell me which is the larger {x}, the first or the second.", "Name the larger {x}, first or second.",
                 "Do you see the larger {x} in the first or the second {picture}?", "Tell me which {x} is larger, first or second.",
                 "Is the larger {x} in the first or the second {picture}?"],
                ["Does the first or the second {picture} show the larger {x}?", "Say which is the larger {x}, first or second.",
                 "Is the larger {x} the first or the second?", "Which {x} is the larger, first or second?"])
DIGITS, PICTURES = ["digit", "number", "numeral"], ["picture", "image", "photo"]
# By type of question: its forms, and what stands for {x}.
PHRASES = {"digit": (NAME, DIGITS), "parity": (IS_IT, [f"even {digit}" for digit in DIGITS]), "larger": (COMPARE, DIGITS), "count": (COUNT, DIGITS),
           "class": (NAME, ["thing", "object", "item"]), "animal": (IS_IT, ["animal"])}
TYPES = list(PHRASES)  # without --types
DESCRIBE = Forms(["Describe this {picture}.", "Describe what you see.", "Write a caption for the {picture}.", "Tell me what you see in the {picture}.",
                  "What do you see in this {picture}?", "Say what is in this {picture}.", "Caption this {picture}.", "What is in the {picture}?"],
                 ["Describe the {picture}.", "Write a caption for this {picture}.", "Tell me what is in this {picture}.", "What do you see in the {picture}?"])
PHRASES["caption"] = (DESCRIBE, [""])
CAPTION_WORDS = ["A drawing of the digit", "a small and even number", "a small and odd number", "a large and even number", "a large and odd number",
                 "A photo of an", "A photo of a", "which is an animal.", "which is no animal.", "Two digits,", "and", "of which the first is larger.",
                 "of which the second is larger."]
N_HELD_OUT = 4  # forms of each type
SPECIAL = ["<image>", "<|im_start|>", "<|im_end|>"]


def png(width, height, rows, kind):
    """A PNG file of 8 bits a channel; kind 0: gray, 2: RGB."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    raw = b"".join(b"\0" + bytes(row) for row in rows)
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


def mnist(folder, part, n):
    """The first n digits as (label, PNG)."""
    images = gzip.open(folder / f"{part}-images-idx3-ubyte.gz").read(16 + n * 784)[16:]
    labels = gzip.open(folder / f"{part}-labels-idx1-ubyte.gz").read(8 + n)[8:]
    for i in range(n):
        one = images[i * 784:(i + 1) * 784]
        yield labels[i], png(28, 28, [one[y * 28:(y + 1) * 28] for y in range(28)], 0)


def packed(path, n):
    """The first n records of a pack as (label, JPEG)."""
    with open(path, "rb") as file:
        for _ in range(n):
            label, size = struct.unpack("<BI", file.read(5))
            yield label, file.read(size)


def cifar(path, n):
    """The first n of CIFAR's records as (label, PNG)."""
    with lzma.open(path) as file:
        for _ in range(n):
            record = file.read(3073)
            planes = [record[1 + c * 1024:1 + (c + 1) * 1024] for c in range(3)]
            rows = [bytes(planes[c][y * 32 + x] for x in range(32) for c in range(3)) for y in range(32)]
            yield record[0], png(32, 32, rows, 2)


def put(out, name, pictures, ending):
    """Writes pictures; their (label, path below out)."""
    found = []
    for i, (label, data) in enumerate(pictures):
        path = f"pictures/{name}-{i:05d}.{ending}"
        (out / path).write_bytes(data)
        found.append((label, path))
    return found


def caption(digits, things, rng):
    """A picture of a digit or a thing, or two digits, and a sentence that says what can be seen."""
    what = rng.choice(["digit", "thing", "digits"])
    if what == "digit":
        label, path = rng.choice(digits)
        return [path], f"A drawing of the digit {WORDS[label]}, a {'small' if label < 5 else 'large'} and {'odd' if label % 2 else 'even'} number."
    if what == "thing":
        label, path = rng.choice(things)
        name = CLASSES[label]
        return [path], f"A photo of {'an' if name[0] in 'aeiou' else 'a'} {name}, which is {'an' if name in ANIMALS else 'no'} animal."
    paths, larger = question("larger", digits, things, rng)
    names = dict((path, WORDS[label]) for label, path in digits)
    return paths, f"Two digits, {names[paths[0]]} and {names[paths[1]]}, of which the {larger} is larger."


def question(kind, digits, things, rng):
    """Pictures, and the answer to a question of this type about them."""
    if kind == "caption":
        return caption(digits, things, rng)
    if kind in ("digit", "parity"):
        label, path = rng.choice(digits)
        return [path], (WORDS[label] if kind == "digit" else "yes" if label % 2 == 0 else "no")
    if kind == "larger":
        first, second = rng.sample(digits, 2)
        while first[0] == second[0]:
            second = rng.choice(digits)
        return [first[1], second[1]], "first" if first[0] > second[0] else "second"
    if kind == "count":
        n = rng.randint(1, 2)
        return [path for _, path in rng.sample(digits, n)], WORDS[n]
    label, path = rng.choice(things)
    name = CLASSES[label]
    return [path], (name if kind == "class" else "yes" if name in ANIMALS else "no")


def conversation(phrase, pictures, answer):
    content = [{"type": "image"} for _ in pictures] + [{"type": "text", "text": phrase}]
    return {"images": pictures, "messages": [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]}


def phrase(kind, rng, form=None):
    """Of a held-out form, or of any that is trained."""
    forms, words = PHRASES[kind]
    return (rng.choice(forms.trained) if form is None else forms.held_out[form]).format(x=rng.choice(words), picture=rng.choice(PICTURES))


def held_out_form(kind, question):
    """Which of a type's held-out forms a question has."""
    forms, words = PHRASES[kind]
    for i, form in enumerate(forms.held_out):
        if any(form.format(x=word, picture=picture) == question for word in words for picture in PICTURES):
            return i
    raise ValueError(f"{question!r} has no held-out form of {kind}")


def pieces(text):
    """As ByteLevel's pattern splits plain ASCII: words with the space before them, and signs."""
    return [piece.replace(" ", "\u0120") for piece in re.findall(r" ?[A-Za-z]+| ?[^\sA-Za-z]+", text)]


def merges(kinds):
    """Of byte-pair encoding, until every piece of a question or an answer is a token: the most frequent pair first, then by the alphabet."""
    texts = [form.format(x=word, picture=picture) for forms, words in [PHRASES[kind] for kind in dict.fromkeys([*TYPES, *kinds])]
             for form in forms.trained + forms.held_out for word in words for picture in PICTURES]
    texts += CAPTION_WORDS + [f"A {name}" for name in WORDS + CLASSES] if "caption" in kinds else []
    texts += CLASSES + WORDS + ["yes", "no", "first", "second", "user", "assistant", "system"]
    return papers_data.bpe_merges({piece: 1 for text in texts for piece in pieces(text)}, sys.maxsize)


def tokenizer(kinds):
    """Bytes, written as GPT-2 writes them, the special tokens behind them, and all words of questions and answers."""
    letters = papers_data.byte_letters()
    pairs = merges(kinds)
    vocab = {letters[byte]: byte for byte in range(256)}
    for token in [*SPECIAL, *(first + second for first, second in pairs)]:
        vocab[token] = len(vocab)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    added = [{"id": vocab[text], "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for text in SPECIAL]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False, "vocab": vocab, "merges": [list(pair) for pair in pairs]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level,
            "post_processor": None, "decoder": level, "model": model}


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", type=int, default=2000, help="pictures of each kind to train on; twice as many conversations")
    parser.add_argument("--test", type=int, default=300, help="held-out pictures of each kind; as many questions, and as many for validation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--types", nargs="+", choices=list(PHRASES), default=TYPES, help="of questions: all but caption, whose answers are "
                        "sentences, without it")
    args = parser.parse_args()
    (args.out / "pictures").mkdir(parents=True, exist_ok=True)
    rng, kinds = random.Random(args.seed), list(dict.fromkeys(args.types))
    digits = put(args.out, "digit", mnist(args.data / "mnist", "train", args.train), "png")
    things = put(args.out, "thing", packed(args.data / "cifar10/train_jpeg.pack", args.train), "jpg")
    test_digits = put(args.out, "test-digit", mnist(args.data / "mnist", "t10k", args.test), "png")
    test_things = put(args.out, "test-thing", cifar(args.data / "cifar10/test_jpegdecoded.bin.xz", args.test), "png")
    train, val, held = [], [], []
    for i in range(2 * args.train):
        kind = kinds[i % len(kinds)]
        train.append(conversation(phrase(kind, rng), *question(kind, digits, things, rng)))
    for i in range(args.test):
        kind = kinds[i % len(kinds)]
        val.append(conversation(phrase(kind, rng), *question(kind, test_digits, test_things, rng)))
        pictures, answer = question(kind, test_digits, test_things, rng)
        form = i // len(kinds) % N_HELD_OUT
        held.append({"images": pictures, "question": phrase(kind, rng, form), "answer": answer, "type": kind})
    rng.shuffle(train)
    lines(args.out / "train.jsonl", train)
    lines(args.out / "val.jsonl", val)
    lines(args.out / "questions.jsonl", held)
    (args.out / "tokenizer.json").write_text(json.dumps(tokenizer(kinds), ensure_ascii=False))
    answers = [row["answer"] for row in held]
    most = max(set(answers), key=answers.count)
    by_kind = sum(max(group.count(a) for a in set(group)) for group in ([r["answer"] for r in held if r["type"] == k] for k in kinds) if group)
    print(f"{len(train)} conversations, {len(val)} for validation, {len(held)} questions; '{most}' answers {answers.count(most) / len(answers):.1%} of "
          f"them, each type's most frequent answer {by_kind / len(answers):.1%}")


if __name__ == "__main__":
    main()
