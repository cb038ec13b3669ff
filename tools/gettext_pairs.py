#!/usr/bin/env python3
"""Pairs of sentences from the gettext catalogues of this machine's packages: English and what it is in another language.

    tools/gettext_pairs.py LANGUAGE OUT [--folder /usr/share/locale] [--test 0.1] [--val 0.05]

Writes OUT/train.tsv, OUT/val.tsv and OUT/test.tsv with columns source and target, and prints how many pairs there are of
how many packages. A package is the name of a catalogue (bash.mo); all its pairs are in one part, drawn by a hash of its
name, so that test pairs come from packages unseen, and of a source that several parts have the pair stays in the first of
test, val, train alone. Cleaned: the catalogue's header, plural forms but the first, messages with a context of their own,
untranslated ones, those of more than one line or without a letter; key marks (_File, &File) and white space at the ends go.
Only the standard library.
"""

import argparse
import hashlib
import re
import struct
from pathlib import Path

PARTS = ("test", "val", "train")


def read_mo(data):
    """(msgid, msgstr) of a compiled catalogue, as bytes. Raises ValueError for what is none."""
    if len(data) < 20:
        raise ValueError("too short")
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(data[:4])
    if order is None:
        raise ValueError("no catalogue")
    _, n, ids, texts = struct.unpack_from(order + "4I", data, 4)
    if max(ids, texts) + 8 * n > len(data):
        raise ValueError("cut short")
    for i in range(n):
        pair = []
        for table in (ids, texts):
            length, at = struct.unpack_from(order + "2I", data, table + 8 * i)
            if at + length > len(data):
                raise ValueError("cut short")
            pair.append(data[at:at + length])
        yield tuple(pair)


def charset_of(entries):
    for msgid, msgstr in entries:
        if msgid == b"":
            found = re.search(rb"charset=([-\w]+)", msgstr)
            return found.group(1).decode() if found else "utf-8"
    return "utf-8"


def cleaned(text):
    """A text without key marks and outer white space; nothing for what is no sentence."""
    text = re.sub(r"(?<![\w&])[_&](?=\w)", "", text)
    text = text.strip()
    if "\n" in text or "\t" in text or "\r" in text or not any(c.isalpha() for c in text):
        return None
    return re.sub(r" {2,}", " ", text)


def pairs_of(data):
    entries = list(read_mo(data))
    charset = charset_of(entries)
    for msgid, msgstr in entries:
        if msgid == b"" or b"\x04" in msgid:
            continue
        try:
            source, target = (part.split(b"\0")[0].decode(charset) for part in (msgid, msgstr))
        except (UnicodeDecodeError, LookupError):
            continue
        source, target = cleaned(source), cleaned(target)
        if source and target and source != target:
            yield source, target


def part_of(package, test, val):
    share = int.from_bytes(hashlib.sha256(package.encode()).digest()[:8], "big") / 2**64
    return "test" if share < test else "val" if share < test + val else "train"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language")
    parser.add_argument("out", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("/usr/share/locale"))
    parser.add_argument("--test", type=float, default=0.1)
    parser.add_argument("--val", type=float, default=0.05)
    flags = parser.parse_args()
    parts = {part: {} for part in PARTS}
    packages = dict.fromkeys(PARTS, 0)
    for path in sorted((flags.folder / flags.language / "LC_MESSAGES").glob("*.mo")):
        part = part_of(path.stem, flags.test, flags.val)
        packages[part] += 1
        try:
            for source, target in pairs_of(path.read_bytes()):
                parts[part].setdefault(source, target)
        except ValueError as error:
            print(f"{path}: left out: {error}")
    seen = set()
    flags.out.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        pairs = {source: target for source, target in parts[part].items() if source not in seen}
        seen |= pairs.keys()
        lines = [f"{source}\t{target}\n" for source, target in pairs.items()]
        (flags.out / f"{part}.tsv").write_text("source\ttarget\n" + "".join(lines), encoding="utf-8")
        print(f"{part}: {len(pairs)} pairs of {packages[part]} packages")


if __name__ == "__main__":
    main()
