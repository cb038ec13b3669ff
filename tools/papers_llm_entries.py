"""The entries of tools/papers.py that train, quantize and plan decoders. Data alone, as papers_entries.py."""

from papers_entries import BLS, FP8, HIF8, HIF8_RECIPE, Criterion, Entry, Published

COAT = "Xi et al., ICLR 2025, COAT"
SCALIFY = "Balanca et al. 2024, Scalify"

ALS = "loss_scaling: adaptive"
ALL = "{{base: fp8_linear, override: {{'layers.*': {{x: {0}, w: {0}, dy: {0}}}}}}}"
LLM_RECIPES = {
    "bf16": "bf16",
    "fp8_linear": "fp8_linear",
    "coat": "coat",
    "coat-stored": "{base: coat, forward_reads: stored}",
    "coat-qkv": "{base: coat, saved_attention: qkv}",
    "coat-qkvo": "{base: coat, saved_attention: qkvo}",
    "coat-1x32": "{base: coat, activation_group: 32}",
    "coat-1x128": "{base: coat, activation_group: 128}",
    "coat-32x32": "{base: coat, activation_group: 32x32}",
    "coat-128x128": "{base: coat, activation_group: 128x128}",
    "fp16": f"{{base: fp16, {BLS}}}",
    "hif8": f"{{{HIF8_RECIPE}}}",
    "fp16-als": f"{{base: fp16, {ALS}}}",
    "hif8-als": f"{{base: hif8, compute: fp16, scaling: none, {ALS}}}",
    "hif8-als-pts": f"{{base: hif8, compute: fp16, scaling: periodic, {ALS}}}",
    "e4m3": ALL.format("e4m3"),
    "e5m2": ALL.format("e5m2"),
    "fp8-loss-scaling": f"{{base: fp8_linear, compute: fp16, scaling: none, {BLS}}}",
}

# As METHODS of papers_entries.py. GPT's products without the head, as the papers' tables of language models have them.
LLM_METHODS = {
    "int8": "--format int8 --method max",
    "e4m3": "--format e4m3 --method max",
    "e4m3-cast": "--format e4m3 --method direct",
    "hif8-cast": "--format hif8 --method direct",
    "hif8-pts": "--format hif8 --method algorithm1",
    "hif8-smooth": "--format hif8 --method smoothed",
}

# Models and lengths of runs; bytes are tokens. full: recipes/llama-25m.yaml's model.
LLM_BUDGETS = {
    "small": {
        "llama": {"hidden": 64, "layers": 2, "heads": 2, "kv_heads": 2, "ffn": 176, "seq": 64},
        "llama_train": {"steps": 400, "batch": 8, "lr": 3e-3},
        "gpt2": {"hidden": 64, "layers": 2, "heads": 2, "kv_heads": 2, "ffn": 256, "seq": 64, "vocab": 50304},
        "gpt2_train": {"steps": 60, "batch": 8, "lr": 1e-3},
        "scaling": {"batch": 4, "seq": 256, "hidden": 512, "ffn": 1408},
        "bytes": 65536,
    },
    "full": {
        "llama": {"hidden": 512, "layers": 8, "heads": 8, "kv_heads": 8, "ffn": 1408, "seq": 256},
        "llama_train": {"steps": 1000, "batch": 16, "lr": 1e-3},
        "gpt2": {"hidden": 1024, "layers": 8, "heads": 16, "kv_heads": 16, "ffn": 4096, "seq": 1024, "vocab": 65536},
        "gpt2_train": {"steps": 300, "batch": 8, "lr": 2e-4},
        "scaling": {"batch": 4, "seq": 2048, "hidden": 4096, "ffn": 11008},
        "bytes": 0,
    },
    "large": {
        "llama": {"hidden": 768, "layers": 12, "heads": 12, "kv_heads": 12, "ffn": 2048, "seq": 1024},
        "llama_train": {"steps": 1000, "batch": 8, "lr": 6e-4},
        "gpt2": {"hidden": 1024, "layers": 8, "heads": 16, "kv_heads": 16, "ffn": 4096, "seq": 1024, "vocab": 65536},
        "gpt2_train": {"steps": 1000, "batch": 32, "lr": 2e-4},
        "scaling": {"batch": 8, "seq": 2048, "hidden": 4096, "ffn": 11008},
        "bytes": 0,
    },
}

LLAMA = "a byte-level Llama, trained from new weights"
WIKI_BYTES = "English Wikipedia; validation on other articles"
# COAT's own change from BF16 at 1B.
WITHIN_COAT = "the paired mean of the change is within 0.013 nats, the paper's own, or two standard errors"
WITHIN_HIF8 = "the paired mean of the change is within 0.01 nats or two standard errors; the paper's are up to 0.018 (7.40 to 7.53)"
PLAN = "what `octet plan` says of a GPU's memory; no run"

LLM_ENTRIES = (
    Entry(
        name="coat-llm", title="A language model trained with COAT", source=COAT, table="3", task="train_llm", model=LLAMA, data=WIKI_BYTES,
        metric="loss", factor=1, baseline="bf16", variants=("fp8_linear", "coat", "coat-stored"), criterion=Criterion("within", 0.013, WITHIN_COAT),
        published=(Published("OLMo-1B, Dolma, train loss", 2.995, {"fp8_linear": 3.001, "coat": 3.008}),),
        differs="the change of the validation loss, in nats a byte; TE's place is taken by `fp8_linear`; `coat-stored` is the paper's flow, in which the "
                "forward pass reads the stored groups, too"),
    Entry(
        name="coat-attention", title="Attention's values saved in 8 bits", source=COAT, table="appendix D", task="train_llm", model=LLAMA, data=WIKI_BYTES,
        metric="loss", factor=1, baseline="coat", variants=("coat-qkv", "coat-qkvo"),
        criterion=Criterion("within", 0.003, "the paired mean of the change is within 0.003 nats or two standard errors"),
        published=(Published("queries, keys and values in FP8", words="proposed in the appendix, without figures in our copy"),),
        differs="`coat-qkvo` saves attention's output so, too; a layer of a 7B model keeps 6.415 U instead of 8.165 (`octet plan`)"),
    Entry(
        name="coat-groups", title="Sizes of the groups of saved activations", source=COAT, table="figure 4", task="train_llm", model=LLAMA, data=WIKI_BYTES,
        metric="loss", factor=1, baseline="bf16", variants=("coat", "coat-1x32", "coat-1x128"), criterion=Criterion("within", 0.013, WITHIN_COAT),
        published=(Published("groups of 1 x 16 chosen", words="errors of groupings alone; no losses in our copy"),)),
    Entry(
        name="coat-blocks", title="Blocks of rows in the place of groups", source=COAT, table="figure 4", task="train_llm", model=LLAMA, data=WIKI_BYTES,
        metric="loss", factor=1, baseline="bf16", variants=("coat", "coat-32x32", "coat-128x128"), criterion=Criterion("within", 0.013, WITHIN_COAT),
        published=(Published("groups of 1 x 16 chosen", words="errors of groupings alone; no losses in our copy"),),
        differs="blocks as Jetfire has them, in E4M3"),
    Entry(
        name="coat-states", title="Errors of 8-bit optimizer states", source=COAT, table="1 and 8", task="study_states", model=LLAMA + " in BF16, f32 moments",
        data="the moments behind the last step", metric="mse", factor=1, baseline="e4m3 / e4m3",
        variants=("e4m3+x / e4m3+x", "e4m3+x / e4m3", "e4m3 / e4m3+x", "e4m3+x / e5m2+x", "e5m2 / e5m2", "de8 / de8", "de8+x / e4m3+x", "de8 / de8+x",
                  "e4m3+x100352 / e4m3+x100352"),
        criterion=Criterion("times", 0, "with both moments expanded the error is at least 1.63 times smaller than with none, and with m in DE8+X and v in "
                                        "E4M3+X at least 1.97 times (15.13 to 7.47 of the paper)",
                            {"e4m3+x / e4m3+x": 1.63, "de8+x / e4m3+x": 1.97}),
        published=(Published("unit and model not in the text", 20.10,
                             {"e4m3+x / e4m3+x": 12.31, "e4m3+x / e4m3": 15.13, "e4m3 / e4m3+x": 18.08, "e4m3+x / e5m2+x": 12.43, "e5m2 / e5m2": 40.30,
                              "de8 / de8": 10.54, "de8+x / e4m3+x": 7.47, "de8 / de8+x": 16.25}),),
        differs="formats are those of m / v; the error is that of m / (sqrt(v) + eps); `e4m3+x100352` is what COAT's package expands to"),
    Entry(
        name="coat-layer", title="Activations that a layer keeps", source=COAT, table="2", task="plan_layer", model="recipes/llama-2-7b.yaml, a layer",
        data=PLAN, metric="units", factor=1, baseline="bf16", variants=("fp8_linear", "coat"),
        criterion=Criterion("times", 0, "COAT keeps at most 1 / 1.69 of BF16's bytes", {"coat": 1.69}),
        published=(Published("a Llama-style layer, U", 22.66, {"fp8_linear": 18.33, "coat": 13.33}),),
        differs="1 U is batch x sequence x hidden x 2 bytes; the paper's BF16 row has 4 U of norms in FP32, which transformers makes and ours does not; "
                "ours are what a step keeps between the passes, so `coat` computes norms and products again, and FP8 linears gain less on a smaller "
                "sum"),
    Entry(
        name="coat-scaling", title="Sources of a tensor's scale, timed", source=COAT, table="of figure 4b", task="bench_scaling",
        model="what a layer's forward products read, E4M3 with one scale a tensor (`octet bench scaling`); `small`: hidden 512, ffn 1408, 1,024 tokens, "
              "`full`: a layer of 7B, 8,192 tokens", data="made-up values in BF16", metric="ms", factor=1, baseline="just-in-time",
        variants=("group", "delayed"),
        criterion=Criterion("times", 0, "scales of groups' maxima take no longer than those of the tensor's own amax", {"group": 1}),
        published=(Published("group scaling against just-in-time", words="group scaling is cheaper; the figure's numbers are not in the text"),),
        differs="kernels alone, milliseconds of all four inputs of a layer, each seed a measurement anew; the maxima of groups come with the tensor"),
    Entry(
        name="coat-memory", title="Memory of a whole step", source=COAT, table="7", task="plan_memory", model="recipes/llama-2-7b.yaml, masters bf16_sr",
        data=PLAN, metric="peak", factor=1, baseline="bf16", variants=("fp8_linear", "coat"),
        criterion=Criterion("times", 0, "`coat` needs at most 1 / 1.52 of BF16's memory at batch 2", {"coat": 1.52}),
        published=(Published("Llama-2-7B, 4 GPUs, batch 2, GB a GPU", 55.1, {"fp8_linear": 51.1, "coat": 35.6}),
                   Published("Llama-2-7B, 8 GPUs, batch 2, GB a GPU", 41.2, {"fp8_linear": 37.2, "coat": 27.0})),
        differs="one GPU in the place of 4 and 8, GiB; the largest batch in 80 GiB is in the CSV file (`largest_batch`, 0: none)"),
    Entry(
        name="hif8-llm", title="A language model trained in HiFloat8 with backward loss scaling", source=HIF8, table="7", task="train_llm", model=LLAMA,
        data=WIKI_BYTES, metric="loss", factor=1, baseline="fp16", variants=("hif8",), criterion=Criterion("within", 0.01, WITHIN_HIF8),
        published=(Published("GPT3-350M, perplexity", 17.43, {"hif8": 17.52}), Published("GPT3-2.7B, perplexity", 14.96, {"hif8": 15.04})),
        differs="the change of the loss in nats a byte; both sides have global backward loss scaling (BLS)"),
    Entry(
        name="hif8-llm-als", title="A language model trained in HiFloat8 with adaptive loss scaling", source=HIF8, table="7", task="train_llm", model=LLAMA,
        data=WIKI_BYTES, metric="loss", factor=1, baseline="fp16-als", variants=("hif8-als", "hif8-als-pts"),
        criterion=Criterion("within", 0.01, WITHIN_HIF8),
        published=(Published("GPT3-6.7B, perplexity", 13.06, {"hif8-als": 13.14, "hif8-als-pts": 12.99}),
                   Published("LLaMA-7B, perplexity", 8.25, {"hif8-als-pts": 8.28}), Published("LLaMA-13B, perplexity", 8.71, {"hif8-als-pts": 8.74})),
        differs="FP16 has adaptive loss scaling (ALS), too: its first steps, which are left out, act as a warm-up; the paper's baseline has BLS"),
    Entry(
        name="hif8-llm-ptq", title="A language model quantized to HiFloat8", source=HIF8, table="8", task="ptq_llm", model=LLAMA + " in BF16", data=WIKI_BYTES,
        metric="nll", factor=-1, baseline="bf16", variants=("hif8-pts", "hif8-cast", "hif8-smooth"),
        criterion=Criterion("ordered", 0, "PTS loses less than the cast, by more than two standard errors"),
        published=(Published("LLaMA-7B, perplexity", -5.00, {"hif8-cast": -5.06, "hif8-pts": -5.02, "hif8-smooth": -5.02}),
                   Published("LLaMA-13B, perplexity", -4.54, {"hif8-cast": -4.60, "hif8-pts": -4.55, "hif8-smooth": -4.58}),
                   Published("OPT-7B, perplexity", -9.08, {"hif8-cast": -10.68, "hif8-pts": -9.54, "hif8-smooth": -9.38})),
        differs="the log-likelihood of a byte (higher is better), and perplexities with a minus sign"),
    Entry(
        name="fp8-llm", title="A language model trained in FP8", source=FP8, table="4", task="train_llm", model=LLAMA, data=WIKI_BYTES, metric="loss", factor=1,
        baseline="bf16", variants=("fp8_linear", "e4m3", "e5m2", "fp8-loss-scaling"),
        criterion=Criterion("within", 0.01, "the paired mean of the change is within 0.01 nats or two standard errors"),
        published=(Published("GPT, 126M to 175B, perplexity", words="within the baseline's variation from run to run; the table's numbers are not known to us"),),
        differs="`e4m3` and `e5m2` have one format for all operands; `fp8-loss-scaling` has loss scaling alone and no scales of tensors, with FP16 beside"),
    Entry(
        name="fp8-llm-ptq", title="A language model in E4M3 and in INT8", source=FP8, table="5", task="ptq_llm", model=LLAMA + " in BF16", data=WIKI_BYTES,
        metric="nll", factor=-1, baseline="bf16", variants=("e4m3", "int8", "e4m3-cast"),
        criterion=Criterion("ordered", 0, "E4M3 loses less than INT8, by more than two standard errors"),
        published=(Published("GPT, wikitext103, perplexity", words="E4M3 far better than INT8; the table's numbers are not known to us"),),
        differs="the log-likelihood of a byte (higher is better); one scale for each tensor, from the largest magnitude"),
    Entry(
        name="scalify-168m", title="Experiments of Scalify", source=SCALIFY, table="3", task="train_scalify",
        model="a GPT-2 of hidden 1024, 8 layers, vocabulary 65,536: 168.9 M parameters (`full`)", data="English Wikipedia, GPT-2's tokens; validation on other "
        "articles", metric="loss", factor=1, baseline="#0", variants=("#1", "#2", "#3", "#4"),
        criterion=Criterion("within", 0.01, "the paired mean of the change is within 0.01 nats or two standard errors"),
        published=(Published("train loss", words="the losses are lost in our copy; 'no significant difference'"),),
        differs="the first steps of the run alone; the change of the validation loss in nats a token"),
)
