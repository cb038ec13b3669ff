"""The entries of tools/papers.py that train models with an encoder and a decoder. Data alone, as papers_entries.py."""

from papers_entries import BLS, FP8, HIF8, HIF8_RECIPE, Criterion, Entry, Published

TRANSLATION_RECIPES = {
    "bf16": "bf16",
    "fp8_linear": "fp8_linear",
    "coat": "coat",
    "fp16": f"{{base: fp16, {BLS}}}",
    "hif8": f"{{{HIF8_RECIPE}}}",
}

# Models and lengths of runs; layers are those of the encoder, and of the decoder as many. ci: to try the entries, of no model
# that translates. full: 26 M parameters, for a GPU. A batch is of that many full rows, and of more where they are shorter.
TRANSLATION_BUDGETS = {
    "ci": {
        "marian": {"hidden": 32, "layers": 1, "heads": 2, "ffn": 64},
        "marian_train": {"steps": 4, "batch": 2, "lr": 1e-3},
        "lstm_seq2seq": {"hidden": 16, "layers": 2, "heads": 1},
        "lstm_seq2seq_train": {"steps": 2, "batch": 2, "lr": 1e-3},
        "t5": {"hidden": 32, "layers": 1, "heads": 2, "ffn": 64},
        "t5_train": {"steps": 4, "batch": 2, "lr": 1e-3},
        "vocab": 320, "pairs": 8, "val_rows": 8,
    },
    "small": {
        "marian": {"hidden": 64, "layers": 2, "heads": 4, "ffn": 256},
        "marian_train": {"steps": 400, "batch": 8, "lr": 3e-3},
        "lstm_seq2seq": {"hidden": 64, "layers": 2, "heads": 1},
        "lstm_seq2seq_train": {"steps": 1600, "batch": 8, "lr": 1e-2},
        "t5": {"hidden": 64, "layers": 2, "heads": 4, "ffn": 176},
        "t5_train": {"steps": 400, "batch": 4, "lr": 3e-3},
        "vocab": 2048, "pairs": 300, "val_rows": 300,
    },
    "full": {
        "marian": {"hidden": 512, "layers": 3, "heads": 8, "ffn": 2048},
        "marian_train": {"steps": 400, "batch": 256, "lr": 1e-3},
        "lstm_seq2seq": {"hidden": 512, "layers": 2, "heads": 1},
        "lstm_seq2seq_train": {"steps": 1600, "batch": 256, "lr": 3e-3},
        "t5": {"hidden": 512, "layers": 4, "heads": 8, "ffn": 1024},
        "t5_train": {"steps": 400, "batch": 256, "lr": 1e-3},
        "vocab": 8192, "pairs": 1000, "val_rows": 2048,
    },
}

TRANSFORMER = "a Transformer (`marian`: norms behind sums, sinusoidal positions, one matrix of embeddings), trained from new weights with label smoothing 0.1"
LSTM = ("a two-layer LSTM encoder and decoder with attention (`lstm_seq2seq`, GNMT's kind: layers run forward in time alone, without dropout), trained from "
        "new weights with label smoothing 0.1")
PAIRS = ("English and German messages of this machine's packages (`tools/gettext_pairs.py de`: 32,036 pairs of 82 packages), BPE; tested on "
         "pairs of 7 other packages, prose alone, since a copy has most of the others right; greedy decoding")
COPY = 5
WITHIN_BLEU = (f"the paired mean of the change is within 0.3 BLEU or two standard errors, and the baseline is {COPY} BLEU at least above a copy of the "
               "source")

TRANSLATION_ENTRIES = (
    Entry(
        name="fp8-transformer", title="A translating Transformer trained in FP8", source=FP8, table="3", task="train_translation", model=TRANSFORMER,
        data=PAIRS, metric="bleu", factor=1, baseline="bf16", variants=("fp8_linear", "coat"),
        criterion=Criterion("within", 0.3, WITHIN_BLEU, above=("copy_bleu", COPY)),
        published=(Published("Transformer, WMT16 En-De, newstest2014 BLEU", words="within the baseline's variation from run to run; the table's numbers are "
                                                                                  "not known to us"),),
        differs="`coat` stands beside FP8 and is in no table of the paper; the head, which is tied to the embeddings, stays in BF16. Losses are in the CSV "
                "file"),
    Entry(
        name="fp8-lstm", title="A translating LSTM trained in FP8", source=FP8, table="3", task="train_lstm", model=LSTM, data=PAIRS, metric="bleu", factor=1,
        baseline="bf16", variants=("fp8_linear",), criterion=Criterion("within", 0.3, WITHIN_BLEU, above=("copy_bleu", COPY)),
        published=(Published("GNMT, WMT16 En-De, newstest2014 BLEU", words="within the baseline's variation from run to run; the table's numbers are not "
                                                                           "known to us"),),
        differs="each use of a recurrent matrix has scales of input and gradient of its own; the head, which is tied to the embeddings, stays in BF16. Losses "
                "are in the CSV file"),
    Entry(
        name="hif8-transformer", title="A translating Transformer trained in HiFloat8", source=HIF8, table="5", task="train_translation", model=TRANSFORMER,
        data=PAIRS, metric="bleu", factor=1, baseline="fp16", variants=("hif8",), criterion=Criterion("within", 0.3, WITHIN_BLEU, above=("copy_bleu", COPY)),
        published=(Published("Transformer-Base, WMT16 En-De, newstest2014 BLEU", 25.92, {"hif8": 26.04}),),
        differs="gradients are rounded to nearest (TA), as in the paper's row. Both sides have global backward loss scaling (BLS). Losses are in the CSV file"),
    Entry(
        name="hif8-t5", title="T5 trained in HiFloat8 with backward loss scaling", source=HIF8, table="7", task="train_t5",
        model="T5 with gated GELU, trained from new weights", data="English Wikipedia, BPE; 15 % of the tokens left out in spans of 3; validation on other articles",
        metric="loss", factor=1, baseline="fp16", variants=("hif8",),
        criterion=Criterion("within", 0.0174, "the paired mean of the change is within 0.0174 nats, the paper's own, or two standard errors"),
        published=(Published("T5-11B, ln of its perplexities 7.40 and 7.53", 2.0015, {"hif8": 2.0189}),),
        differs="the change of the loss in nats a token of the targets; perplexities are in the CSV file. Both sides have global backward loss scaling (BLS)"),
)
