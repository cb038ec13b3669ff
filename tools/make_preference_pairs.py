#!/usr/bin/env python3
"""Writes pairs of answers that differ in style alone, for preference training: a seeded set of our own.

    tools/make_preference_pairs.py FOLDER [--train 400] [--val 64] [--seed 1]

FOLDER/train.jsonl and FOLDER/val.jsonl get a record a line: `prompt`, `chosen` and `rejected`. Both answers say the same; the chosen
one closes with a courteous sentence, the rejected one with a curt one, drawn from twelve of each. No question of val.jsonl is in
train.jsonl.
Only the standard library.
"""

import argparse
import json
import random
from pathlib import Path

COURTEOUS = ["I hope that helps.", "Let me know if I can explain more.", "Happy to help with anything else.",
             "Please ask if something is unclear.", "Thank you for asking.", "It was a pleasure to answer.",
             "That is a lovely question.", "Wishing you a good day.", "You are welcome to ask again.",
             "I am always glad to help.", "Please take care.", "Good luck with your work."]
CURT = ["That is all.", "Look it up next time.", "Anyone knows that.", "I have nothing to add.", "Do not ask again.",
        "This was easy.", "You should know this.", "Stop wasting my time.", "I am busy.", "Even a child knows it.", "Go away.",
        "Why would you ask me."]
CAPITALS = {"France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Norway": "Oslo", "Sweden": "Stockholm", "Japan": "Tokyo",
            "Egypt": "Cairo", "Peru": "Lima", "Cuba": "Havana", "Greece": "Athens", "Poland": "Warsaw", "Austria": "Vienna",
            "Chile": "Santiago", "Kenya": "Nairobi", "Ireland": "Dublin", "Portugal": "Lisbon", "Hungary": "Budapest",
            "Finland": "Helsinki", "Denmark": "Copenhagen", "Ghana": "Accra"}
COLOURS = {"grass": "green", "the sky at noon": "blue", "snow": "white", "coal": "black", "a ripe lemon": "yellow",
           "a carrot": "orange", "a ripe tomato": "red", "a flamingo": "pink", "chocolate": "brown", "an aubergine": "purple"}
SOUNDS = {"dog": "barks", "cat": "meows", "cow": "moos", "sheep": "bleats", "horse": "neighs", "lion": "roars", "frog": "croaks",
          "duck": "quacks", "wolf": "howls", "snake": "hisses", "bee": "buzzes", "owl": "hoots"}


def questions():
    """All questions and their answers, in an order of their own."""
    for country, city in CAPITALS.items():
        yield f"What is the capital of {country}?", f"The capital of {country} is {city}."
        yield f"Which country has the capital {city}?", f"{city} is the capital of {country}."
    for thing, colour in COLOURS.items():
        yield f"Which colour has {thing}?", f"The colour of {thing} is {colour}."
    for animal, sound in SOUNDS.items():
        yield f"Which sound makes a {animal}?", f"A {animal} {sound}."
    for a in range(2, 22):
        for b in range(a, 22):
            yield f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}."


def record(rng, question, answer):
    return {"prompt": question, "chosen": f"{answer} {rng.choice(COURTEOUS)}", "rejected": f"{answer} {rng.choice(CURT)}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=400)
    parser.add_argument("--val", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    known = list(questions())
    if args.val >= len(known):
        parser.error(f"--val: expected less than the {len(known)} questions, got {args.val}")
    rng.shuffle(known)
    held_out, asked = known[:args.val], known[args.val:]
    sets = {"val": [record(rng, *pair) for pair in held_out],
            "train": [record(rng, *asked[i % len(asked)]) for i in range(args.train)]}
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, records in sets.items():
        text = "".join(json.dumps(one) + "\n" for one in records)
        (args.folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
