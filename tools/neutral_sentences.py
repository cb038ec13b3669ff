"""The proofs of the neutral keys of folders of sentence-transformers, of tokenizers and of processors of pictures
(tools/neutral_keys.py)."""
import json
import pathlib
import shutil
import tempfile

import numpy as np
import torch
import transformers

import parity

TEXTS = ["The Scale is wrong , isn't it ?", "a é 中 b", "", "quick quick brown [MASK] fox " * 9]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[SPARE]", *"abcdefghijklmnopqrstuvwxyz.T", *("##" + c for c in "abcdefghijklmnopqrstuvwxyz"),
         "the", "scale", "quick", "##rown", "fox"]


def encoder_folder(at, **keys):
    """A tiny BERT with a tokenizer of word pieces, whose every field is off its default."""
    at.mkdir(parents=True)
    (at / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    tokenizer = transformers.BertTokenizer(vocab=str(at / "vocab.txt"), do_lower_case=False, strip_accents=True, model_max_length=40)
    tokenizer.save_pretrained(at)
    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                                     max_position_embeddings=40, type_vocab_size=3, layer_norm_eps=1e-4, hidden_act="gelu_new",
                                     pad_token_id=0, **keys)
    model = transformers.BertModel(config).eval()
    with torch.no_grad():
        for w in model.parameters():
            w.add_(torch.randn_like(w) * 0.1)
    model.save_pretrained(at)
    (at / "vocab.txt").unlink()


def sentence_folder(at):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer
    encoder_folder(at.parent / "encoder")
    body = Transformer(str(at.parent / "encoder"), max_seq_length=24)
    model = SentenceTransformer(modules=[body, Pooling(32, pooling_mode="cls"), Normalize()], device="cpu")
    model.save(str(at))
    shutil.rmtree(at.parent / "encoder")


def vectors(at):
    from sentence_transformers import SentenceTransformer
    return SentenceTransformer(str(at), device="cpu").encode(TEXTS)


def ids(at):
    """What a model is given of texts and pairs, one at a time and padded to one length, and the text that they are decoded to."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(at)
    given = [tokenizer(text, pair) for text in TEXTS for pair in (None, TEXTS[0])] + [tokenizer(TEXTS, padding=True)]
    flat = [x for one in given for name in sorted(one) for x in [len(name), *np.ravel(one[name])]]
    decoded = [tokenizer.decode(tokenizer(text)["input_ids"]) for text in TEXTS]
    return np.array(flat + [ord(c) for text in decoded for c in text], dtype=np.float64)


def bytes_folder(at, kind):
    """A byte-level BPE with a template, as folders of decoders have it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    at.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE(vocab=parity.byte_vocabulary() | {"<s>": 256, "</s>": 257, "<pad>": 258}, merges=[]))
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>"])
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 256)])
    tokenizer.save(str(at / "tokenizer.json"))
    config = {"tokenizer_class": kind, "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "model_max_length": 4000}
    (at / "tokenizer_config.json").write_text(json.dumps(config))


def pixels(at):
    from PIL import Image
    picture = Image.fromarray((np.indices((13, 29)).sum(0)[..., None] * [3, 5, 7] % 256).astype(np.uint8))
    processor = transformers.AutoImageProcessor.from_pretrained(at)
    return processor(picture, return_tensors="np")["pixel_values"].astype(np.float64)


def picture_folder(at):
    at.mkdir(parents=True)
    transformers.ViTImageProcessor(size={"height": 12, "width": 12}, resample=3, image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6],
                                   rescale_factor=1 / 255).save_pretrained(at)
    (at / "config.json").write_text(json.dumps({"model_type": "vit"}))


# file: [(name of a folder, how it is made)], what the reference gives of it, and its neutral keys with two values each
# (src/infer/folder_keys.cpp).
BOTH, WORDS_OF = (True, False), ("a", "b")
NEUTRAL = {
    "config_sentence_transformers.json": ([("bert", sentence_folder)], vectors, {
        "__version__": ({"sentence_transformers": "2.0.0"}, {}), "similarity_fn_name": ("dot", "euclidean"),
        "prompts": ({"query": "Find: "}, {"query": "", "document": "x"})}),
    "sentence_bert_config.json": ([("bert", sentence_folder)], vectors, {
        "unpad_inputs": BOTH, "query_length": (4, 9), "document_length": (4, 9),
        **{f"{group}/trust_remote_code": BOTH for group in (
            "model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")},
        **{f"{group}/attn_implementation": ("eager", "sdpa") for group in ("model_args", "model_kwargs")}}),
    "modules.json": ([("bert", sentence_folder)], vectors, {"0/name": ("a", "7"), "0/idx": (5, 9), "0/kwargs": (["task"], [])}),
    "1_Pooling/config.json": ([("bert", sentence_folder)], vectors, {
        "include_prompt": BOTH, "embedding_dimension": (16, 64), "word_embedding_dimension": (16, 64)}),
    "tokenizer_config.json": ([
        ("BertTokenizer", encoder_folder), ("GPT2Tokenizer", lambda at: bytes_folder(at, "GPT2Tokenizer")),
        ("PreTrainedTokenizerFast", lambda at: bytes_folder(at, "PreTrainedTokenizerFast"))], ids, {
        "backend": ("tokenizers", "other"), "do_basic_tokenize": BOTH, "errors": ("strict", "ignore"),
        "is_local": BOTH, "local_files_only": BOTH, "max_length": (6, 9),
        "name_or_path": WORDS_OF, "never_split": (["fox"], []), "pad_to_multiple_of": (8, 16), "pad_token_type_id": (1, 2),
        "padding": ("max_length", "longest"), "processor_class": WORDS_OF, "sp_model_kwargs": ({"a": 1}, {}),
        "spaces_between_special_tokens": BOTH, "special_tokens_map_file": WORDS_OF, "stride": (2, 1), "tokenizer_file": WORDS_OF,
        "truncation": (True, "only_first"), "truncation_strategy": ("only_first", "longest_first"),
        "unk_id": (2, 5), "use_default_system_prompt": BOTH,
        "wordpieces_prefix": ("@@", "#")}),
    "preprocessor_config.json": ([("vit", picture_folder)], pixels, {
        "_valid_processor_keys": (["images"], []), "data_format": ("channels_first", "channels_last"), "device": ("cpu", None),
        "disable_grouping": BOTH, "do_convert_rgb": BOTH, "do_reduce_labels": BOTH, "image_seq_length": (5, 7),
        "input_data_format": ("channels_first", "channels_last"), "processor_class": WORDS_OF, "return_tensors": ("pt", "np"),
        "use_fast": BOTH}),
}


def put(at, key, value):
    json_ = json.loads(at.read_text())
    *path, last = [int(part) if part.isdigit() else part for part in key.split("/")]
    place = json_
    for part in path:
        place = place[part] if isinstance(place, list) else place.setdefault(part, {})
    place[last] = value
    at.write_text(json.dumps(json_))


def prove_one(file):
    folders, run, keys = NEUTRAL[file]
    with tempfile.TemporaryDirectory() as scratch:
        made = []
        for name, make in folders:
            at = pathlib.Path(scratch) / name / "model"
            make(at)
            made.append((name, at, (at / file).read_text(), run(at)))
        for key, values in keys.items():
            far, why = 0.0, ""
            for name, at, stored, expected in made:
                for value in values:
                    (at / file).write_text(stored)
                    put(at / file, key, value)
                    try:
                        got = run(at)
                        moved = float("inf") if got.shape != expected.shape else float(np.abs(got - expected).max())
                        why += f"{name} {value}: {moved:.2g} "
                    except Exception as error:  # noqa: BLE001 - whatever the reference says of a value
                        moved, why = float("inf"), why + f"{name} {value}: {str(error)[:80]!r} "
                    far = max(far, moved)
                (at / file).write_text(stored)
            yield {"key": key, "values": " | ".join(map(json.dumps, values)), "given": "", "holds": "outputs",
                   "models": " ".join(name for name, _ in folders), "proof": "same" if far == 0 else "1e-6" if far <= 1e-6 else "", "why": why}


READERS = {file: (lambda file=file: prove_one(file)) for file in NEUTRAL}
