"""Data of tools/papers.py, made of Wikipedia articles by seeds: a WordPiece vocabulary, answers, and pairs of sentences; and BPE of any lines.

Articles are separated by empty lines; a line is a paragraph. All makers are functions of (text, seed): the same files on every machine.
Only the standard library.
"""

import collections
import heapq
import json
import random
import re
from pathlib import Path

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BLANK = "_ _ _"  # what stands for a blanked phrase


def paragraphs(path, least_words=30):
    """Lines of prose; headings and short lines are left out."""
    with open(path, encoding="utf-8") as lines:
        return [line.strip() for line in lines if len(line.split()) >= least_words and not line.startswith(("=", " ="))]


def sentences(paragraph, least=8, most=28):
    """Sentences of so many words, cut at a full stop before a space and a capital letter."""
    parts = re.split(r"(?<=[a-z0-9)]\.) (?=[A-Z])", paragraph)
    return [part for part in parts if least <= len(part.split()) <= most]


def make_tokenizer(path, out, n_words=6000):
    """A tokenizer.json of BERT's kind: every character of the text that 20 others share, alone and behind others, and its most frequent words."""
    words = collections.Counter()
    for paragraph in paragraphs(path, 5):
        words.update(re.findall(r"\w+|[^\w\s]", paragraph.lower()))
    characters = collections.Counter()
    for word, count in words.items():
        for character in set(word):
            characters[character] += count
    kept = sorted(character for character, count in characters.items() if count >= 20)
    frequent = sorted(words, key=lambda word: (-words[word], word))
    whole = [word for word in frequent if len(word) > 1 and set(word) <= set(kept)][:n_words]
    tokens = [*SPECIAL, *kept, *("##" + character for character in kept), *whole]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}

    def part(kind, name, type_id):
        return {kind: {"id": name, "type_id": type_id}}

    single = [part("SpecialToken", "[CLS]", 0), part("Sequence", "A", 0), part("SpecialToken", "[SEP]", 0)]
    pair = [*single, part("Sequence", "B", 1), part("SpecialToken", "[SEP]", 1)]
    around = {name: {"id": name, "ids": [vocab[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": name, **special} for i, name in enumerate(SPECIAL)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": around},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": vocab},
    }
    Path(out).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return len(vocab)


def byte_letters():
    """The letter that stands for each byte in a byte-level BPE: itself where it is printed, else one from 256 on."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {byte: chr(byte if byte in printed else next(others)) for byte in range(256)}


def bpe_merges(words, n):
    """At most n merges of the symbols of {word: count}, the most frequent pair first, of equals the first in order."""
    pieces = [list(word) for word in words]
    counts = list(words.values())
    of_pair, where = collections.Counter(), collections.defaultdict(set)
    for i, piece in enumerate(pieces):
        for pair in zip(piece, piece[1:]):
            of_pair[pair] += counts[i]
            where[pair].add(i)
    heap = [(-count, pair) for pair, count in of_pair.items()]
    heapq.heapify(heap)
    merges = []
    while heap and len(merges) < n:
        count, pair = heapq.heappop(heap)
        if -count != of_pair[pair] or count == 0:
            continue  # it has another count by now, which is in the heap
        merges.append(pair)
        changed = set()
        for i in where.pop(pair):
            piece = pieces[i]
            for old in zip(piece, piece[1:]):
                of_pair[old] -= counts[i]
                changed.add(old)
            at = 0
            while at + 1 < len(piece):
                if (piece[at], piece[at + 1]) == pair:
                    piece[at:at + 2] = [pair[0] + pair[1]]
                at += 1
            for new in zip(piece, piece[1:]):
                of_pair[new] += counts[i]
                where[new].add(i)
                changed.add(new)
        for one in sorted(changed):
            if of_pair[one] > 0:
                heapq.heappush(heap, (-of_pair[one], one))
    return merges


def make_bpe(lines, out, n_tokens):
    """A tokenizer.json of a byte-level BPE with so many tokens, of which the first two are padding and the end of each text."""
    letters = byte_letters()
    words = collections.Counter()
    for line in lines:
        words.update(re.findall(r" ?[^\W\d_]+| ?\d+| ?[^\s\w]+|\s+|_+", line))
    spelled = {"".join(letters[byte] for byte in word.encode()): count for word, count in sorted(words.items()) if count > 1}
    special = ["<pad>", "</s>"]
    alphabet = [letters[byte] for byte in range(256)]
    merges = bpe_merges(spelled, n_tokens - len(special) - len(alphabet))
    tokens = [*special, *alphabet, *(first + second for first, second in merges)]
    vocab = {token: i for i, token in enumerate(tokens)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                         for i, name in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, end],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, end, {"Sequence": {"id": "B", "type_id": 1}}, end],
                           "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
        "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "vocab": vocab, "merges": [f"{first} {second}" for first, second in merges]},
    }
    Path(out).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def perturbed(sentence, rng):
    """The same said a little differently: two neighbouring words change places, and one of ten words (one at least) is left out."""
    words = sentence.split()
    at = rng.randrange(len(words) - 1)
    words[at], words[at + 1] = words[at + 1], words[at]
    for _ in range(max(1, len(words) // 10)):
        words.pop(rng.randrange(len(words)))
    return " ".join(words)


def make_pairs(path, out, n, seed):
    """Two sentences a line and whether the second is a perturbed copy of the first (1) or of another sentence of the same paragraph (0).

    As many of each; MRPC has 68 % of 1.
    """
    rng = random.Random(f"pairs {seed}")
    sources = [found for found in (sentences(one) for one in paragraphs(path)) if len(found) > 1]
    with open(out, "w", encoding="utf-8") as lines:
        for i in range(n):
            first, other = rng.sample(rng.choice(sources), 2)
            label = i % 2
            line = {"sentence1": first, "sentence2": perturbed(first if label else other, rng), "label": label}
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")


def make_similar(path, out, n, seed):
    """Two sentences a line and how alike they are: the second is the first with 0, 1/4, 2/4, 3/4 or all of its words replaced by those that stand
    there in another sentence of the same paragraph, and "score" is the share that is left.
    """
    rng = random.Random(f"similar {seed}")
    sources = [found for found in (sentences(one) for one in paragraphs(path)) if len(found) > 1]
    with open(out, "w", encoding="utf-8") as lines:
        for i in range(n):
            first, other = (sentence.split() for sentence in rng.sample(rng.choice(sources), 2))
            replaced = set(rng.sample(range(len(first)), round(len(first) * (i % 5) / 4)))
            second = [other[at % len(other)] if at in replaced else word for at, word in enumerate(first)]
            line = {"sentence1": " ".join(first), "sentence2": " ".join(second), "score": 1 - i % 5 / 4}
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")


def make_spans(path, out, n, seed):
    """SQuAD's JSON: the question is a sentence of the context in which a phrase of one to three words is blanked, the answer is the phrase.

    The context is the sentence, whole, with the one before and the one behind it.
    """
    rng = random.Random(f"spans {seed}")
    sources = [found for found in (sentences(one, 8, 20) for one in paragraphs(path)) if len(found) > 2]
    data = []
    while len(data) < n:
        found = rng.choice(sources)
        at = rng.randrange(1, len(found) - 1)
        words = found[at].split()
        n_words = rng.randint(1, 3)
        first = rng.randrange(0, len(words) - n_words)
        answer = " ".join(words[first:first + n_words])
        question = " ".join([*words[:first], BLANK, *words[first + n_words:]])
        before = " ".join(words[:first])
        start = len(found[at - 1]) + 1 + len(before) + (1 if before else 0)
        context = " ".join(found[at - 1:at + 2])
        if context[start:start + len(answer)] != answer or " ".join(words) != found[at]:
            continue
        answers = [{"text": answer, "answer_start": start}]
        paragraph = {"context": context, "qas": [{"id": f"{seed}-{len(data)}", "question": question, "answers": answers}]}
        data.append({"title": "", "paragraphs": [paragraph]})
    Path(out).write_text(json.dumps({"version": "1.1", "data": data}, ensure_ascii=False), encoding="utf-8")
