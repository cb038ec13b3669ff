"""tools/papers.py: verdicts of made figures, and what is said where there are none."""

import contextlib
import io
import json
import random
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import make_picture_questions as questions
import papers
import papers_data
import papers_llm_tasks
import papers_tasks
import papers_translation_tasks
import papers_vlm

BY_NAME = {entry.name: entry for entry in papers.ENTRIES}


def put(folder, entry, figures):
    """(seed, variant, metric, value, se) each."""
    papers.write_rows(folder, entry, [
        {"budget": "small", "device": "cpu", "processor": "a CPU", "seed": seed, "variant": variant, "metric": metric, "value": value, "se": se,
         "rows": 100} for seed, variant, metric, value, se in figures])


def measured(folder, entry):
    return papers.measurements(folder, entry)["small", "cpu"]


def said(of):
    return papers.verdict_text(of.verdicts())


def pairs_of_seeds_are_compared(folder):
    entry = BY_NAME["hif8-vit"]
    values = [(0.50, 0.51), (0.40, 0.44), (0.60, 0.60)]
    put(folder, entry, [(seed, variant, "acc", value, "") for seed, pair in enumerate(values) for variant, value in zip(("fp16", "hif8"), pair)])
    before, after, change, error, n = measured(folder, entry).of("hif8")
    assert (round(before, 6), round(after, 6), round(change, 6), n) == (50, 51.666667, 1.666667, 3)
    assert abs(error - 1.2018504) < 1e-6, error  # 1, 4, 0: stdev 2.0817 / sqrt 3
    assert said(measured(folder, entry)) == "agrees"  # within two standard errors
    put(folder, entry, [(seed, variant, "acc", value + seed / 1000, "") for seed in range(3) for variant, value in (("fp16", 0.50), ("hif8", 0.49))])
    assert said(measured(folder, entry)) == "differs"
    put(folder, entry, [(0, "fp16", "acc", 0.50, ""), (0, "hif8", "acc", 0.49, "")])
    assert said(measured(folder, entry)) == "not decided by 1 seed"


def losses_have_a_limit_and_an_order(folder):
    entry = BY_NAME["hif8-vit-ptq"]

    def changes(cast, pts):
        put(folder, entry, [(0, variant, f"acc_{part}", value, "0.001") for variant, after in (("hif8-cast", cast), ("hif8-pts", pts))
                            for part, value in (("before", 0.7), ("after", 0.7 + after), ("change", after))])
        return said(measured(folder, entry))

    assert changes(-0.004, 0.02) == "agrees"
    assert changes(-0.006, 0) == "hif8-cast not decided: within two standard errors of the limit, hif8-pts agrees"
    assert changes(-0.008, -0.008) == "differs"
    assert changes(-0.008, 0) == "hif8-cast differs, hif8-pts agrees"
    entry = BY_NAME["fp8-bert-mlm"]
    for e4m3, int8, expected in ((0.01, 0.2, "agrees"), (0.2, 0.01, "differs"), (0.01, 0.03, "not decided: within two standard errors")):  # of the loss, where less is better
        put(folder, entry, [(0, variant, f"nll_{part}", value, "0.01") for variant, change in (("e4m3", e4m3), ("int8", int8))
                            for part, value in (("before", 3), ("after", 3 + change), ("change", change))])
        assert said(measured(folder, entry)) == expected
    put(folder, entry, [(0, "e4m3", f"nll_{part}", 1, "") for part in ("before", "after", "change")])
    assert said(measured(folder, entry)) == "not measured as a whole"


def sizes_are_compared_as_quotients(folder):
    entry = BY_NAME["coat-layer"]

    def sizes(*coat):
        put(folder, entry, [(seed, variant, "units", value, "") for seed, last in enumerate(coat)
                            for variant, value in (("bf16", 16), ("fp8_linear", 14), ("coat", last))])
        return measured(folder, entry)

    assert sizes(8).of("coat")[2:] == (2, None, 1) and said(sizes(8)) == "agrees"
    assert said(sizes(10)) == "differs"  # 1.6 times
    assert said(sizes(10, 8)) == "agrees"
    assert said(sizes(10, 9.8, 9.9)) == "differs"
    assert "| 22.66 | `coat` | 13.33 | 1.70 x |" in papers.page(folder)


def the_page_has_every_entry_and_says_what_is_missing(folder):
    text = papers.page(folder)
    assert all(f"## {entry.title}" in text for entry in papers.ENTRIES)
    assert "| ours |  |  |  |  |  | not measured |" in text and "| 79.05 | `hif8` | 79.18 | +0.13 |" in text
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        sys.argv = ["papers.py", "run", "fp8-vit", "--data", str(folder / "none"), "--out", str(folder / "out"), "--program", "none"]
        assert papers.main() == 1
    assert "cifar10" in said.getvalue() and "is missing: --data is the folder with" in said.getvalue(), said.getvalue()
    assert not papers.TASKS.keys() ^ {entry.task for entry in papers.ENTRIES}


def made_data_are_the_same_for_a_seed(folder):
    sentences = [f"The {a} of the group {b} was made by the town of {c} in the year {i}." for i, (a, b, c) in enumerate(
        (a, b, c) for a in ("scale", "model") for b in ("kernel", "token", "graph") for c in ("Rome", "Oslo"))]
    source = folder / "wiki.txt"
    source.write_text("\n".join(" ".join(sentences[i:i + 4]) for i in range(8)), encoding="utf-8")
    texts = []
    for seed in (1, 1, 2):
        papers_data.make_pairs(source, folder / "pairs", 20, seed)
        papers_data.make_spans(source, folder / "spans", 20, seed)
        papers_data.make_similar(source, folder / "similar", 20, seed)
        texts.append(tuple((folder / name).read_text() for name in ("pairs", "spans", "similar")))
    assert texts[0] == texts[1] and not any(one == other for one, other in zip(texts[0], texts[2]))
    for pair in map(json.loads, texts[0][2].splitlines()):
        first, second = pair["sentence1"].split(), pair["sentence2"].split()
        same = sum(one == other for one, other in zip(first, second))
        assert len(first) == len(second) and same >= round(pair["score"] * len(first)), pair
        assert pair["score"] < 1 or first == second
    pairs = [json.loads(line) for line in texts[0][0].splitlines()]
    assert sum(pair["label"] for pair in pairs) == 10
    for pair in pairs:  # a copy has lost a word or two, and no other came in
        same = set(pair["sentence2"].split()) <= set(pair["sentence1"].split())
        assert same or not pair["label"], pair
    for article in json.loads(texts[0][1])["data"]:
        paragraph = article["paragraphs"][0]
        question = paragraph["qas"][0]
        answer = question["answers"][0]
        start = answer["answer_start"]
        assert paragraph["context"][start:start + len(answer["text"])] == answer["text"]
        whole = question["question"].replace(papers_data.BLANK, answer["text"])
        assert whole in paragraph["context"], (whole, paragraph["context"])


def a_translation_is_better_than_a_copy_or_decides_nothing(folder):
    entry = BY_NAME["hif8-transformer"]
    for copied, expected in ((10, "agrees"), (16, "not decided: the baseline is not 5 above copy_bleu")):
        put(folder, entry, [(seed, variant, metric, value, "") for seed in range(3) for variant in ("fp16", "hif8")
                            for metric, value in (("bleu", 20), ("copy_bleu", copied))])
        assert said(measured(folder, entry)) == expected
    bleu = papers_translation_tasks.corpus_bleu
    assert abs(bleu(["the cat sat on the mat"], ["the cat sat on a mat"]) - 53.7285) < 1e-4  # (5/6 3/5 2/4 1/3)^(1/4)
    assert abs(bleu(["the cat"], ["the cat sat"]) - 0) < 1e-9  # no words for orders 3 and 4
    assert papers_translation_tasks.words_of("a (b), 1,000-2 %s") == ["a", "(", "b", ")", ",", "1,000", "-", "2", "%", "s"]


def merges_are_of_the_most_frequent_pairs(folder):
    assert papers_data.bpe_merges({"abab": 3, "aab": 1, "bc": 5}, 3) == [("a", "b"), ("b", "c"), ("ab", "ab")]
    texts = []
    for name in ("one", "two"):
        papers_data.make_bpe(["low lower lowest", "new \u00fcber newer"] * 2, folder / name, 280)
        texts.append((folder / name).read_text(encoding="utf-8"))
    model = json.loads(texts[0])["model"]
    assert texts[0] == texts[1] and len(model["vocab"]) <= 280 and all(merge.replace(" ", "") in model["vocab"] for merge in model["merges"])


def equal_numbers_have_the_mean_of_their_ranks(_):
    assert papers_tasks.ranks([7, 0, 100, 7]) == [2.5, 1, 4, 2.5]
    assert papers_tasks.ranks([3, 3, 3]) == [2, 2, 2]


def held_out_forms_of_questions_have_words_that_are_trained(folder):
    words, held_out = set(), set()
    for forms, things in questions.PHRASES.values():
        assert len(set(forms.held_out)) == questions.N_HELD_OUT >= 4 and not set(forms.held_out) & set(forms.trained)
        for all_words, of_these in ((words, forms.trained), (held_out, forms.held_out)):
            all_words.update(word for form in of_these for x in things for word in re.findall(r"[a-z]+", form.format(x=x, picture="picture").lower()))
    assert held_out and held_out <= words, held_out - words
    # Types share their forms: without what stands for {x} nothing says which it is.
    assert questions.PHRASES["digit"][0] == questions.PHRASES["class"][0] and questions.PHRASES["parity"][0] == questions.PHRASES["animal"][0]
    vocab = questions.tokenizer(questions.PHRASES)["model"]["vocab"]
    assert sorted(vocab.values()) == list(range(len(vocab))) and len(vocab) <= 512 and vocab["<image>"] == 256
    for text in ("Which numeral is in the photo?", "Does the first or the second image show the larger digit?", "automobile", "zero"):
        assert all(piece in vocab for piece in questions.pieces(text)), text
    assert len(questions.tokenizer(questions.TYPES)["model"]["vocab"]) < len(vocab) and "caption" not in questions.TYPES
    rng = random.Random(1)
    for _ in range(50):  # each word of a caption is a token
        paths, text = questions.caption([(i, f"{i}.png") for i in range(10)], [(i, f"{i}.jpg") for i in range(10)], rng)
        assert 1 <= len(paths) <= 2 and all(piece in vocab for piece in questions.pieces(text)), text
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps({"type": kind, "answer": answer}) + "\n" for kind, answer in (("a", "x"), ("a", "x"), ("a", "y"), ("b", "z"))))
    assert papers_vlm.majority(path) == 0.75
    # Each held-out form is known by its text, whatever stands in it.
    rng = random.Random(1)
    rows = [(kind, form, questions.phrase(kind, rng, form)) for kind in questions.PHRASES for form in range(questions.N_HELD_OUT) for _ in range(3)]
    assert all(questions.held_out_form(kind, text) == form for kind, form, text in rows)
    path.write_text("".join(json.dumps({"type": kind, "question": text, "right": form == 2}) + "\n" for kind, form, text in rows))
    assert papers_vlm.by_form(path) == sorted((kind, form, 3 if form == 2 else 0, 3) for kind in questions.PHRASES for form in range(questions.N_HELD_OUT))
    assert list(papers_vlm.curve([{"loss": i // 2} for i in range(20)] + [{"val_loss": 9}])) == [(i, 2) for i in range(10)]


def a_large_standard_error_decides_nothing(folder):
    entry = BY_NAME["coat-vlm"]
    for spread, expected in ((0.01, "agrees"), (0.05, "fp8_linear agrees, coat not decided: a standard error is above 1")):
        put(folder, entry, [(seed, variant, "acc", value, "") for seed in range(3)
                            for variant, value in (("bf16", 0.8), ("fp8_linear", 0.8), ("coat", 0.8 + spread * (seed - 1)))])
        assert said(measured(folder, entry)) == expected


def a_training_that_was_cut_short_is_made_again(folder):
    class Cut(papers_tasks.Bench):
        n_trained = 0

        def run(self, *arguments):
            out = folder / "net-bf16-0"
            assert not out.exists(), "octet train refuses a folder that is there"
            out.mkdir()
            self.n_trained += 1
            if self.n_trained == 1:
                raise KeyboardInterrupt

    bench = Cut("octet", folder, folder, "small", "cpu", None, None)
    for expected in (1, 2, 2):
        with contextlib.suppress(KeyboardInterrupt):
            bench.train_with("net", "bf16", "bf16", 0, {})
        assert bench.n_trained == expected


def states_of_runs_on_a_gpu_are_studied_on_the_cpu(folder):
    entry = BY_NAME["coat-states"]

    class Studied(papers_tasks.Bench):
        def need(self, path):
            return folder / path

        def trained(self, out, *_):
            return out

        def run(self, *arguments, device=None):
            assert arguments[:2] == ("study", "states") and (device or self.device) == "cpu", "octet study states opens no device"
            pairs = [pair.partition(" / ") for pair in (entry.baseline, *entry.variants)]
            return json.dumps([{"m \\ v": m, **{v + end: 1 for _, _, v in pairs for end in ("", " +-")}} for m in {m for m, _, _ in pairs}])

    (folder / "wiki_train_00.txt").touch()
    bench = Studied("octet", folder, folder, "small", "cuda")
    assert len(list(papers_llm_tasks.study_states(bench, entry, 0))) == 2 * (1 + len(entry.variants))


if __name__ == "__main__":
    for test in (pairs_of_seeds_are_compared, losses_have_a_limit_and_an_order, sizes_are_compared_as_quotients, the_page_has_every_entry_and_says_what_is_missing,
                 made_data_are_the_same_for_a_seed, equal_numbers_have_the_mean_of_their_ranks,
                 held_out_forms_of_questions_have_words_that_are_trained, a_translation_is_better_than_a_copy_or_decides_nothing,
                 merges_are_of_the_most_frequent_pairs, a_large_standard_error_decides_nothing, a_training_that_was_cut_short_is_made_again,
                 states_of_runs_on_a_gpu_are_studied_on_the_cpu):
        with tempfile.TemporaryDirectory() as name:
            test(Path(name))
        print("ok  ", test.__name__)
