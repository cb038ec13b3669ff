#!/usr/bin/env python3
"""Folders of tiny random models of transformers that translate, and what they write by its generate().

    tools/make_translation_goldens.py FOLDER [SOURCES]    writes FOLDER/NAME/ for every model below, with SOURCES sources (24)

FOLDER/NAME/cases.json has the sources and, for each setting of decoding, the ids of every text without the start token and
what ends it. FOLDER/tokenizer.json has a Marian tokenizer and the ids of texts, FOLDER/scores.json texts with references and
their BLEU and chrF, FOLDER/buckets.json the distances at which T5's buckets begin. Needs torch, transformers, safetensors, sentencepiece and sacrebleu; only tests/golden/translation reads the files.
"""

import json
import pathlib
import random
import shutil
import sys
import tempfile

import sacrebleu
import sentencepiece
import torch
import transformers
from transformers.models.t5.modeling_t5 import T5Attention

T5 = {"vocab_size": 29, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_heads": 3, "num_layers": 2, "num_decoder_layers": 2,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9, "decoder_start_token_id": 0}
MARIAN = {"vocab_size": 29, "d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "encoder_attention_heads": 2,
          "decoder_attention_heads": 2, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 32,
          "pad_token_id": 28, "decoder_start_token_id": 28, "eos_token_id": 0, "forced_eos_token_id": 0,
          "activation_function": "swish", "scale_embedding": True}
MODELS = {
    "t5": ("T5ForConditionalGeneration", T5, 5, 1.2, 0.5),
    "t5_gated": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, 0, 0.8, 0.15),
    "marian": ("MarianMTModel", MARIAN, 0, 1.0, 0.3),
}
DECODINGS = [
    {"num_beams": 1},
    {"num_beams": 4},
    {"num_beams": 4, "length_penalty": 0.4, "early_stopping": True},
    {"num_beams": 3, "length_penalty": 2.0, "early_stopping": "never"},
    {"num_beams": 5, "length_penalty": -1.0},
]
MAX_TOKENS, LONGEST = 14, 11


def make(folder, name, n_sources):
    architecture, fields, seed, deviation, sharpness = MODELS[name]
    torch.manual_seed(seed)
    kind = getattr(transformers, architecture)
    model = kind(kind.config_class(**fields)).eval()
    with torch.no_grad():
        for one in model.parameters():
            if one.requires_grad:
                one.add_(torch.randn_like(one) * (deviation if one.dim() > 1 else 0.1))
        model.get_input_embeddings().weight.mul_(sharpness)  # texts that differ, and end
        if name == "marian":
            model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias) * 0.5)
            model.final_logits_bias[0, model.config.eos_token_id] += 1.5
            model.generation_config.bad_words_ids = [[28]]
    model.save_pretrained(folder / name)
    config = model.config
    lengths = [1 + (7 * i) % LONGEST for i in range(n_sources)]
    ids = torch.randint(2, config.vocab_size - 1, (n_sources, LONGEST))
    mask = (torch.arange(LONGEST)[None, :] < torch.tensor(lengths)[:, None]).long()
    cases = []
    for decoding in DECODINGS:
        texts = []
        for row in model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=MAX_TOKENS, do_sample=False, **decoding).tolist():
            text = row[1:]
            texts.append(text[:text.index(config.eos_token_id)] if config.eos_token_id in text else text)
        cases.append({**decoding, "texts": texts})
    sources = [row[:n] for row, n in zip(ids.tolist(), lengths)]
    text = json.dumps({"max_tokens": MAX_TOKENS, "eos": config.eos_token_id, "sources": sources, "cases": cases})
    (folder / name / "cases.json").write_text(text + "\n")
    print(name, sorted(len(text) for case in cases for text in case["texts"]))


WORDS = ("the cat sat on mat . , 3.14 1,000 a-b 5-6 \"quoted\" it's &quot;x&amp; (a) [b] {c} <d> e/f g: h; ? ! % $5 \u00dcn\u00efcode "
         "stra\u00dfe \u732b \u00a0x \u3000y na\u00efve 1.5. end. -- \n - 2- <skipped> \u2009z @ # a.b ... ,, 7,a b,7 \u0085q e\u0301 "
         "&lt;p&gt;").split(" ")


def make_scores(path):
    """Corpora of random words and symbols, of one reference and of several, and the least ones."""
    random.seed(5)

    def text():
        return " ".join(random.choice(WORDS) for _ in range(random.randint(0, 12)))

    def altered(reference):
        words = reference.split(" ")
        for _ in range(random.randint(0, 4)):
            words[random.randrange(len(words))] = random.choice(WORDS)
        return " ".join(words)

    corpora = [[["", ["the cat"]]], [["", [""]]], [["the", ["the"]]], [["the cat sat on", ["the cat sat on"]]],
               [["a b c d e", ["x y z", "a b c d e f"]]], [["x", ["y"]]], [["cat", [""]]]]
    for n_rows, n_references in ((1, 1), (2, 3), (5, 1), (5, 2), (40, 1), (20, 3)):
        rows = []
        for _ in range(n_rows):
            references = [text() for _ in range(n_references)]
            rows.append([random.choice((altered(references[0]), altered(references[-1]), text(), "", "the")), references])
        corpora.append(rows)
    cases = []
    for rows in corpora:
        texts, references = [row[0] for row in rows], list(map(list, zip(*[row[1] for row in rows])))
        cases.append({"texts": rows, "bleu": sacrebleu.corpus_bleu(texts, references).score,
                      "chrf": sacrebleu.corpus_chrf(texts, references).score})
    path.write_text(json.dumps(cases) + "\n")


def make_buckets(path):
    """[first distance, bucket] of each run of distances from -400 to 400."""
    cases = []
    for n, most in ((32, 128), (8, 20), (64, 256), (10, 37), (7, 9), (32, 64)):
        for is_both in (True, False):
            distances, runs = torch.arange(-400, 401), []
            buckets = T5Attention._relative_position_bucket(distances, bidirectional=is_both, num_buckets=n, max_distance=most)
            for distance, bucket in zip(distances.tolist(), buckets.tolist()):
                if not runs or runs[-1][1] != bucket:
                    runs.append([distance, bucket])
            cases.append({"buckets": n, "distance": most, "both": is_both, "runs": runs})
    path.write_text(json.dumps(cases) + "\n")


def make_tokenizer(path):
    """vocab.json of a Marian tokenizer of two SentencePiece models, and what transformers' class makes of texts."""
    fixtures = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/tokenizers"
    with tempfile.TemporaryDirectory() as folder:
        pieces, files = [], {}
        for side, name in (("source", "sp_unigram"), ("target", "sp_bpe")):
            files[side] = str(pathlib.Path(folder) / f"{side}.spm")
            shutil.copy(fixtures / f"{name}.model", files[side])
            model = sentencepiece.SentencePieceProcessor(files[side])
            pieces += [model.id_to_piece(i) for i in range(3, model.get_piece_size())][::2]  # some are unknown
        names = list(dict.fromkeys(["</s>", "<unk>", ">>fra<<", *pieces, "<pad>"]))
        vocab = {name: i for i, name in enumerate(names)}
        file = pathlib.Path(folder) / "vocab.json"
        file.write_text(json.dumps(vocab))
        tokenizer = transformers.MarianTokenizer(source_spm=files["source"], target_spm=files["target"], vocab=str(file))
        cases = []
        for text in ("the cat sat on the mat", "  two  spaces ", ">>fra<< the rain", "a>>b<<", "end</s>the", "na\u00efve \u732b 12.5", ""):
            ids, target = tokenizer(text).input_ids, tokenizer(text_target=text).input_ids
            tokenizer.current_spm = tokenizer.spm_source
            cases.append({"text": text, "ids": ids, "target": target, "decoded": tokenizer.decode(target, skip_special_tokens=True)})
    path.write_text(json.dumps({"vocab": vocab, "cases": cases}) + "\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    n_sources = int(sys.argv[2]) if len(sys.argv) > 2 else 24
    make_tokenizer(folder / "tokenizer.json")
    make_scores(folder / "scores.json")
    make_buckets(folder / "buckets.json")
    for name in MODELS:
        (folder / name).mkdir(parents=True, exist_ok=True)
        make(folder, name, n_sources)


if __name__ == "__main__":
    main()
