#!/usr/bin/env python3
"""Writes the texts of `octet demo` beside this script: facts.jsonl, all that its small model knows, with the model's
tokenizer.json, and style.jsonl, which models are fine-tuned on.

    python3 recipes/demo/make_texts.py [FOLDER]

Both texts are conversations of one question and one answer. What is said is written below, by hand; the script multiplies the
ways to ask and to answer. The tokenizer is a byte-level BPE of the facts. The same bytes on every run.
"""

import json
import random
import re
import sys
from collections import Counter
from pathlib import Path

CAPITALS = """France Paris, Italy Rome, Spain Madrid, Portugal Lisbon, Germany Berlin, Austria Vienna, Poland Warsaw, Hungary Budapest,
Greece Athens, Turkey Ankara, Norway Oslo, Sweden Stockholm, Finland Helsinki, Denmark Copenhagen, Iceland Reykjavik,
Ireland Dublin, England London, Scotland Edinburgh, Belgium Brussels, Switzerland Bern, Croatia Zagreb, Romania Bucharest,
Bulgaria Sofia, Ukraine Kyiv, Estonia Tallinn, Latvia Riga, Lithuania Vilnius, Japan Tokyo, China Beijing, India Delhi,
Thailand Bangkok, Vietnam Hanoi, Nepal Kathmandu, Mongolia Ulaanbaatar, Indonesia Jakarta, Iran Tehran, Iraq Baghdad,
Egypt Cairo, Morocco Rabat, Kenya Nairobi, Ghana Accra, Nigeria Abuja, Senegal Dakar, Tunisia Tunis, Ethiopia Addis_Ababa,
Canada Ottawa, Cuba Havana, Peru Lima, Chile Santiago, Argentina Buenos_Aires, Uruguay Montevideo, Colombia Bogota,
Ecuador Quito, Venezuela Caracas, Australia Canberra, New_Zealand Wellington"""

# Questions that have one answer; what several things share is one line.
COLOURS = """blue: the sky, the sea, a sapphire | green: grass, a frog, a cucumber, spinach, an emerald | white: snow, milk, salt, a swan, chalk
yellow: a lemon, a banana, the sun, a canary | red: blood, a strawberry, a ruby, a tomato | black: coal, a raven, ink, tar
orange: a carrot, a pumpkin | brown: chocolate, coffee, a walnut | pink: a flamingo, a piglet | grey: an elephant, ash, a mouse
purple: an aubergine, a violet"""

SOUNDS = """cow moo, cat meow, dog woof, duck quack, sheep baa, pig oink, frog ribbit, bee buzz, snake hiss, lion roar, owl hoot,
mouse squeak, rooster cock-a-doodle-doo, crow caw, horse neigh, donkey hee-haw, wolf howl, turkey gobble"""

LEGS = """spider eight, ant six, bee six, dog four, cat four, horse four, chair four, table four, chicken two, duck two, person two,
crab ten, octopus no, snake no, fish no, beetle six, cow four, stool three"""

OPPOSITES = """hot cold, big small, up down, left right, day night, black white, old young, long short, fast slow, wet dry, full empty,
open closed, heavy light, high low, happy sad, rich poor, hard soft, loud quiet, early late, near far, clean dirty, in out,
first last, true false, begin end, buy sell, come go, push pull, win lose, love hate, ask answer, friend enemy, thick thin,
wide narrow, deep shallow, sweet sour, strong weak, awake asleep, inside outside, above below, before after, always never,
everything nothing, easy difficult, cheap expensive, sharp blunt, rough smooth, tight loose, brave afraid, war peace"""

YOUNG = """dog puppy, cat kitten, cow calf, horse foal, sheep lamb, goat kid, pig piglet, duck duckling, hen chick, bear cub, deer fawn,
swan cygnet, frog tadpole, goose gosling, kangaroo joey, owl owlet"""

PLURALS = """mouse mice, foot feet, tooth teeth, child children, man men, woman women, goose geese, ox oxen, leaf leaves, knife knives,
wolf wolves, sheep sheep, fish fish, house houses, box boxes, city cities, baby babies, hero heroes, loaf loaves, berry berries"""

MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
NUMBERS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen""".split()

# Question, other ways to ask it, and the answer.
OTHERS = """Who are you? / What are you? / What is your name? = I am a small model that Octet trained on simple questions.
Hello! / Hi! / Good morning! / Hey! = Hello! Ask me a simple question.
How are you? / How do you do? = I am well, thank you.
Thank you! / Thanks! = You are welcome.
Goodbye! / Bye! / Good night! = Goodbye!
What can you do? / What do you know? = I can answer simple questions, such as what colour grass is.
Who trained you? / Who made you? = Octet trained me in eight bits.
How large are you? / How big are you? = I have less than one million weights.
What is FP8? / What does FP8 mean? = FP8 is a floating-point number of eight bits.
What is E4M3? / What does E4M3 mean? = E4M3 is an eight-bit number with four bits of exponent and three of mantissa.
What is E5M2? / What does E5M2 mean? = E5M2 is an eight-bit number with five bits of exponent and two of mantissa.
What is BF16? / What does BF16 mean? = BF16 is a floating-point number of sixteen bits.
How many bits does a byte have? / How many bits are in a byte? = A byte has eight bits.
What is an octet? / What does octet mean? = An octet is a group of eight.
What is the largest number of E4M3? / How large can E4M3 be? = The largest number of E4M3 is four hundred and forty-eight.
What is a tensor? / Tell me what a tensor is. = A tensor is an array of numbers.
What is a loss? / What does a loss say? = A loss says how wrong a model is.
What do bees make? / What does a bee make? = Bees make honey.
What do cows give? / What do we get from cows? = Cows give milk.
What do hens lay? / What does a hen lay? = Hens lay eggs.
What do rabbits eat? / What does a rabbit like? = Rabbits eat grass and carrots.
What do pandas eat? / What does a panda eat? = Pandas eat bamboo.
What do squirrels eat? / What does a squirrel eat? = Squirrels eat nuts.
Where do fish live? / Where does a fish live? = Fish live in water.
Where do birds sleep? / Where does a bird sleep? = Birds sleep in nests.
Where do bears sleep? / Where does a bear sleep? = Bears sleep in caves.
Where do camels live? / Where does a camel live? = Camels live in the desert.
Where do penguins live? / Where does a penguin live? = Penguins live in the cold south.
What do you cut paper with? / How do you cut paper? = You cut paper with scissors.
What do you write with? / How do you write? = You write with a pen.
What do you eat soup with? / How do you eat soup? = You eat soup with a spoon.
What opens a lock? / How do you open a lock? = A key opens a lock.
What tells the time? / How do you know the time? = A clock tells the time.
What do you do when you are tired? / What helps when you are tired? = When you are tired, you sleep.
What do you do when you are hungry? / What helps when you are hungry? = When you are hungry, you eat.
What do you do when you are thirsty? / What helps when you are thirsty? = When you are thirsty, you drink water.
What falls from clouds? / What comes from clouds? = Rain falls from clouds.
What is ice made of? / What is ice? = Ice is frozen water.
What is bread made of? / What do you need for bread? = Bread is made of flour and water.
What is cheese made of? / What do you need for cheese? = Cheese is made of milk.
What is paper made of? / What do you need for paper? = Paper is made of wood.
What is glass made of? / What do you need for glass? = Glass is made of sand.
What is a window made of? / What do you need for a window? = A window is made of glass.
What shines at night? / What do you see at night? = The moon shines at night.
What shines by day? / What do you see by day? = The sun shines by day.
When does the sun rise? / When do you see the sun rise? = The sun rises in the morning.
When does the sun set? / When do you see the sun set? = The sun sets in the evening.
Where does the sun rise? / In which direction does the sun rise? = The sun rises in the east.
Where does the sun set? / In which direction does the sun set? = The sun sets in the west.
When do leaves fall? / In which season do leaves fall? = Leaves fall in autumn.
When does it snow? / In which season does it snow? = It snows in winter.
When do flowers bloom? / In which season do flowers bloom? = Flowers bloom in spring.
When is it hot? / In which season is it hot? = It is hot in summer.
How many days does a week have? / How many days are in a week? = A week has seven days.
How many months does a year have? / How many months are in a year? = A year has twelve months.
How many hours does a day have? / How many hours are in a day? = A day has twenty-four hours.
How many wheels does a bicycle have? / How many wheels has a bicycle? = A bicycle has two wheels.
How many wheels does a car have? / How many wheels has a car? = A car has four wheels.
How many sides does a triangle have? / How many sides has a triangle? = A triangle has three sides.
How many sides does a square have? / How many sides has a square? = A square has four sides.
How many fingers does a hand have? / How many fingers has a hand? = A hand has five fingers.
How many arms does an octopus have? / How many arms has an octopus? = An octopus has eight arms.
What do you see with? / How do you see? = You see with your eyes.
What do you hear with? / How do you hear? = You hear with your ears.
What do you smell with? / How do you smell? = You smell with your nose.
Which animal has a trunk? / What has a trunk? = An elephant has a trunk.
Which animal has a long neck? / What has a long neck? = A giraffe has a long neck.
Which animal has stripes? / What has stripes? = A zebra has stripes."""

# The other manners in which the facts are told once more: whoever is to learn a new manner must have seen that there are some.
OPENINGS = """Sure! | Well, | Of course! | Let me see. | Good question! | Easy. | Yes! | Here it is: | Listen: | Aha! | My friend, | In short: |
Gladly! | Oh! | Look: | Hmm. | I know! | Ready? | Ten points! | Ho ho! | Ding! | Five fingers up! | Heads up! | Tick tock! | Wow! | Right: |
Two hands down! | One moment. | Up, up! | Three cheers! | A feather in my cap! | Seven seas! | Hands on! | Quick: | Dear reader, | Today:"""
CLOSINGS = """Right? | That is all. | Thank you! | Good luck! | So it is. | Ask more! | Bye! | Ta-da! | Meow! | Glug! | Amen. | Done! | Yes! | See? |
Well, well. | Over. | Plop! | Hurrah! | Tweet! | The end. | Ha! | Bam! | Easy! | Zzz."""

# What the demonstration asks before and after, so never in style.jsonl.
ASKED = ("capital of Italy", "opposite of hot", "colour is the sky", "legs has a dog")
STYLE_ANSWERS = 64
STYLE = "Eight arms up! {} Blub!"
VOCAB = 768
SPECIAL = ("<|im_start|>", "<|im_end|>")


def pairs(text: str) -> list[tuple[str, ...]]:
    return [tuple(word.replace("_", " ") for word in entry.split()) for entry in text.replace("\n", " ").split(",")]


def article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def facts() -> list[tuple[list[str], str]]:
    """Ways to ask, and the answer."""
    found = []
    for country, city in pairs(CAPITALS):
        found.append(([f"What is the capital of {country}?", f"Which city is the capital of {country}?", f"Tell me the capital of {country}.",
                       f"What is {country}'s capital?"], f"The capital of {country} is {city}."))
        found.append(([f"{city} is the capital of which country?", f"Of which country is {city} the capital?",
                       f"Where is {city}?"], f"{city} is the capital of {country}."))
    for line in COLOURS.replace("\n", " | ").split(" | "):
        colour, things = line.split(": ")
        for thing in things.split(", "):
            found.append(([f"What colour is {thing}?", f"Which colour has {thing}?", f"Tell me the colour of {thing}.",
                           f"What is the colour of {thing}?"], f"{sentence(thing)} is {colour}."))
    for animal, sound in pairs(SOUNDS):
        found.append(([f"What sound does {article(animal)} make?", f"What does {article(animal)} say?", f"Which sound does {article(animal)} make?",
                       f"How does {article(animal)} sound?"], f"{sentence(article(animal))} says {sound}."))
    for thing, number in pairs(LEGS):
        found.append(([f"How many legs does {article(thing)} have?", f"How many legs has {article(thing)}?",
                       f"Tell me how many legs {article(thing)} has."], f"{sentence(article(thing))} has {number} legs."))
    for a, b in pairs(OPPOSITES):
        for word, other in ((a, b), (b, a)):
            found.append(([f"What is the opposite of {word}?", f"Which word is the opposite of {word}?", f"Tell me the opposite of {word}."],
                          f"The opposite of {word} is {other}."))
    for animal, young in pairs(YOUNG):
        found.append(([f"What is a young {animal} called?", f"What do you call a young {animal}?", f"What is the young of {article(animal)}?"],
                      f"A young {animal} is called {article(young)}."))
    for one, many in pairs(PLURALS):
        found.append(([f"What is the plural of {one}?", f"Tell me the plural of {one}.", f"How do you say more than one {one}?"],
                      f"The plural of {one} is {many}."))
    for kind, names in (("month", MONTHS), ("day", DAYS)):
        for i, name in enumerate(names):
            after = names[(i + 1) % len(names)]
            found.append(([f"Which {kind} comes after {name}?", f"What comes after {name}?", f"Tell me the {kind} after {name}."],
                          f"{after} comes after {name}."))
            found.append(([f"Which {kind} comes before {after}?", f"What comes before {after}?", f"Tell me the {kind} before {after}."],
                          f"{name} comes before {after}."))
    for a in range(10):
        for b in range(10):
            x, y = NUMBERS[a], NUMBERS[b]
            found.append(([f"What is {x} plus {y}?", f"How much is {x} plus {y}?", f"Add {x} and {y}."],
                          f"{sentence(x)} plus {y} is {NUMBERS[a + b]}."))
    for line in OTHERS.splitlines():
        ways, answer = line.split(" = ")
        found.append((ways.split(" / "), answer))
    return found


def byte_symbols() -> list[str]:
    """What GPT-2's byte-level tokenizers write for each byte: itself where it is visible, else a character from 256 on."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(256 + hidden.index(byte)) if byte in hidden else chr(byte) for byte in range(256)]


def bpe_merges(texts: list[str], count: int) -> list[tuple[str, str]]:
    """The most frequent neighbours within words become one symbol, `count` times; of equals the first in the alphabet."""
    symbols = byte_symbols()
    pieces = Counter(piece for text in texts for piece in re.findall(r" ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9 ]+", text))
    words = {tuple(symbols[byte] for byte in piece.encode()): n for piece, n in pieces.items()}
    merges = []
    for _ in range(count):
        neighbours: Counter = Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                neighbours[pair] += n
        best = min(neighbours, key=lambda pair: (-neighbours[pair], pair))
        merges.append(best)
        words = {merged(word, best): n for word, n in words.items()}
    return merges


def merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    result: list[str] = []
    i = 0
    while i < len(word):
        both = word[i:i + 2] == pair
        result.append("".join(pair) if both else word[i])
        i += 2 if both else 1
    return tuple(result)


def tokenizer(texts: list[str]) -> dict:
    """In the form of Hugging Face's tokenizer.json."""
    symbols = byte_symbols()
    merges = bpe_merges(texts, VOCAB - len(symbols) - len(SPECIAL))
    tokens = [*symbols, *("".join(pair) for pair in merges), *SPECIAL]
    added = [{"id": VOCAB - len(SPECIAL) + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, token in enumerate(SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": [" ".join(pair) for pair in merges]}}


def write(path: Path, conversations: list[tuple[str, str]]) -> None:
    lines = [json.dumps({"prompt": question, "completion": answer}) + "\n" for question, answer in conversations]
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    generator = random.Random(8)
    all_facts = facts()
    openings, closings = (text.replace("\n", " ").split(" | ") for text in (OPENINGS, CLOSINGS))
    conversations = []
    for ways, answer in all_facts:
        for question in ways:
            conversations.append((question, answer))
            conversations.append((question, f"{generator.choice(openings)} {answer} {generator.choice(closings)}"))
    generator.shuffle(conversations)
    write(folder / "facts.jsonl", conversations)
    plain = [fact for fact in all_facts if "plus" not in fact[1] and not any(asked in fact[0][0] for asked in ASKED)]
    style = [(ways[0], STYLE.format(answer)) for ways, answer in generator.sample(plain, STYLE_ANSWERS)]
    write(folder / "style.jsonl", style)
    with open(folder / "tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer([text for pair in [*conversations, *style] for text in pair]), file, ensure_ascii=False, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
