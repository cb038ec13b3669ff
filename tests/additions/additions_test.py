#!/usr/bin/env python3
"""What an addition costs: a recipe, a model family, a model of an encoder and a decoder, a loss, a number format, a granularity, an element-wise op, a collective,
an optimizer, a state, a configuration key, an evaluation task, a variant of a GPU kernel and a layer with its quantized forms are added to a scratch copy of the sources as docs/adding says, and the
existing files that had to change are counted. With --build DIR, where the program is then built, the recipe, models, loss, format and granularity are
compiled and used.

    tests/additions/additions_test.py [--source DIR] [--build DIR] [NAME...]

Prints one line an addition and exits 1 where one takes more files than its limit, an anchor is gone, or what was added
does not work. Only the standard library.
"""

import argparse
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

COUNTED = ("src", "cli", "bench")

TINY_RUN = """
model: {kind: llama, hidden: 32, layers: 2, heads: 4, ffn: 40, vocab: 256, seq: 24}
recipe: bf16
optim: {lr: 5.0e-3, warmup: 1}
data: {train: [text.txt], val_fraction: 0.1}
train: {steps: 3, batch: 2, eval_every: 0, eval_bytes: 200, save_every: 0}
out: run
"""


class Failed(Exception):
    pass


class Scratch:
    """A copy of the sources that an addition changes: of all of them where they are compiled, else of the files that it changes."""

    def __init__(self, source, folder, build):
        self.source, self.root, self.build = source, folder / "tree", build
        self.work = folder / "work"
        self.work.mkdir()
        self.touched, self.added = set(), []
        for name in COUNTED if build else ():
            shutil.copytree(source / name, self.root / name)

    def add(self, path, text):
        if (self.source / path).exists():
            raise Failed(f"{path} is there already")
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)
        self.added.append(path)

    def edit(self, path, anchor, text, where="after"):
        """Puts text after (or before) the first place that the pattern matches."""
        file = self.root / path
        before = (file if file.exists() else self.source / path).read_text()
        match = re.search(anchor, before, re.MULTILINE)
        if match is None:
            raise Failed(f"{path}: nothing matches {anchor!r}; the addition's script must follow the code")
        at = match.end() if where == "after" else match.start()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(before[:at] + text + before[at:])
        self.touched.add(path)

    def run(self, command, cwd=None):
        result = subprocess.run(command, cwd=cwd or self.work, capture_output=True, text=True)
        if result.returncode != 0:
            raise Failed(f"{' '.join(map(str, command))[:200]}\n{(result.stderr or result.stdout)[-3000:]}")
        return result.stdout

    def compile(self, path, like=None):
        """The object of a file of this tree, compiled as the build compiles it (or its sibling `like`)."""
        if not hasattr(self, "commands"):
            entries = json.loads((self.build / "compile_commands.json").read_text())
            self.commands = {entry["file"]: entry for entry in entries}
        entry = self.commands[str(self.source / (like or path))]
        command = entry["command"].replace(str(self.source / (like or path)), str(self.root / path))
        for name in COUNTED:
            command = re.sub(rf"-I{re.escape(str(self.source))}/{name}(?=\s)", f"-I{self.root}/{name}", command)
        words = re.sub(rf"-I{re.escape(str(self.source))}(?=\s)", f"-I{self.root}", command).split()
        target = self.work / (path.replace("/", "_") + ".o")
        words[words.index("-o") + 1] = str(target)
        self.run(words, cwd=entry["directory"])
        return str(target)

    def link(self, objects, program, replace=False):
        """The build's program `octet` with these objects before its libraries, or in place of its own objects."""
        commands = self.run(["ninja", "-C", str(self.build), "-t", "commands", "octet"]).splitlines()
        words = commands[-1].removeprefix(": &&").split("&&")[0].split()
        if replace:
            words = [word for word in words if not word.endswith(".o")]
        at = words.index("-o")
        words[at + 1] = str(program)
        words[at:at] = objects
        words = [word.replace('"', "").replace("\\$ORIGIN", str(self.build)) for word in words]
        self.run(words, cwd=self.build)


def train(scratch, program, sets):
    (scratch.work / "tiny.yaml").write_text(TINY_RUN)
    (scratch.work / "text.txt").write_text("scale amax group moment remainder step\n" * 90)
    words = [str(program), "train", "tiny.yaml", "--quiet"]
    scratch.run(words + [word for item in sets for word in ("--set", item)])
    steps = [json.loads(line) for line in (scratch.work / "run/metrics.jsonl").read_text().splitlines()]
    losses = [step["loss"] for step in steps if "loss" in step]
    if len(losses) != 3 or not all(0 < loss < 10 for loss in losses):
        raise Failed(f"three finite losses were expected, got {losses}")


def list_recipe(scratch):
    scratch.edit("src/passes/precision/list.h", r"extern const Recipe ", "kScratchRecipe, ")
    scratch.edit("src/passes/precision/recipe.cpp", r"constexpr std::array kRecipes = \{", "&kScratchRecipe, ")


def program_with_recipe(scratch):
    files = ["src/passes/precision/scratch.cpp", "src/passes/precision/recipe.cpp"]
    like = {files[0]: "src/passes/precision/hif8.cpp"}
    program = scratch.work / "octet"
    scratch.link([scratch.compile(file, like.get(file)) for file in files], program)
    return program


def add_recipe(scratch):
    scratch.add("src/passes/precision/scratch.cpp", """// A recipe of the test of additions.
#include "passes/precision/list.h"

namespace octet {

const Recipe kScratchRecipe = {
    .name = "scratch",
    .help = "E5M2 everywhere, with HiF8 states",
    .compute = Dtype::bf16,
    .linears = {.quantized = true,
                .x = operand_format(Dtype::e5m2, false),
                .w = operand_format(Dtype::e5m2, false),
                .dy = operand_format(Dtype::e5m2, true)},
    .recompute = Recompute::none,
    .state = "hif8+x",
    .apply = apply_quantized_linears};

}  // namespace octet
""")
    list_recipe(scratch)


def use_recipe(scratch):
    program = program_with_recipe(scratch)
    train(scratch, program, ["recipe=scratch"])
    resolved = (scratch.work / "run/config.yaml").read_text()
    if "state_m: hif8+x" not in resolved:
        raise Failed("auto was not the recipe's state:\n" + resolved)
    if "scratch" not in scratch.run([str(program), "docs", "keys"]):
        raise Failed("--help does not list the recipe")


def add_granularity(scratch):
    """Groups of 64, of factors of products and of saved activations."""
    scratch.add("src/passes/precision/scratch.cpp", """// A granularity of the test of additions.
#include "passes/precision/list.h"

namespace octet {

const Recipe kScratchRecipe = {
    .name = "scratch",
    .help = "E4M3 in groups of 64",
    .compute = Dtype::bf16,
    .linears = {.quantized = true,
                .x = block_format(Dtype::e4m3, "1x64"),
                .w = block_format(Dtype::e4m3, "1x64"),
                .dy = block_format(Dtype::e4m3, "1x64")},
    .recompute = Recompute::cheap,
    .state = "f32",
    .weight_copy = WeightCopy::per_use,
    .activations = Dtype::e4m3,
    .apply = apply_quantized_linears};

}  // namespace octet
""")
    list_recipe(scratch)


def use_granularity(scratch):
    program = program_with_recipe(scratch)
    train(scratch, program, ["recipe=scratch", "model.hidden=128"])
    for device in ("cpu", "cuda"):
        steps = scratch.run([str(program), "plan", "tiny.yaml", "--set", "recipe=scratch", "--set", "model.hidden=128",
                             "--device", device, "--steps"])
        # Saved activations with scales in BF16, factors of products with scales in f32.
        if any(f"e4m3:{groups}[" not in steps for groups in ("1x64", "1x64/f32", "64x1/f32")):
            raise Failed(f"{device}: no group of 64 in the plan")


def list_model(scratch):
    scratch.edit("src/nn/models.def", r"^MODEL\(resnet, .*\n", "MODEL(scratch, kScratch)\n")


def program_with_model(scratch, like):
    files = ["src/nn/scratch.cpp", "src/nn/model.cpp"]
    program = scratch.work / "octet"
    scratch.link([scratch.compile(file, like if file == files[0] else None) for file in files], program)
    return program


def add_model(scratch):
    scratch.add("src/nn/scratch.cpp", """// A model of the test of additions: Llama's decoder with LayerNorms.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {{.field = "norm_eps", .key = "layer_norm_eps", .absent = 1e-5}};

}  // namespace

constinit const ModelDef kScratch = rotary_model<RotaryDecoder{.norm = &Blocks::layer_norm}>(
    ModelKind::scratch, "scratch", "ScratchForCausalLM", kKeys);

}  // namespace octet
""")
    list_model(scratch)


def use_model(scratch):
    program = program_with_model(scratch, "src/nn/olmo.cpp")
    train(scratch, program, ["model.kind=scratch", "model.norm_eps=1.0e-4"])
    written = json.loads((scratch.work / "run/config.json").read_text())
    if written["model_type"] != "scratch" or written["layer_norm_eps"] != 1e-4:
        raise Failed(f"config.json does not say what was trained: {written}")
    # As a model folder, without the run's own configuration.
    folder = scratch.work / "model"
    folder.mkdir()
    shutil.copy(scratch.work / "run/config.json", folder)
    shutil.copy(next((scratch.work / "run/ckpt").glob("step-*")) / "model.safetensors", folder)
    scratch.run([str(program), "eval", "--model", "model", "--data", "text.txt"])


def add_encoder_decoder(scratch):
    """Captions that attend to the patches of a frame: two stacks, inputs of two kinds, an output of its own."""
    scratch.add("src/nn/scratch.cpp", """// A model of the test of additions: an encoder of frames, and a decoder of captions that reads it.
#include "nn/blocks.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {{.field = "vocab", .key = "vocab_size"},
                           {.field = "hidden", .key = "hidden_size"},
                           {.field = "ffn", .key = "intermediate_size"},
                           {.field = "layers", .key = "num_hidden_layers"},
                           {.field = "heads", .key = "num_attention_heads"},
                           {.field = "max_positions", .key = "max_position_embeddings"},
                           {.field = "image_size", .key = "image_size"},
                           {.field = "patch_size", .key = "patch_size"},
                           {.field = "channels", .key = "num_channels"},
                           {.field = "gelu", .key = "hidden_act"},
                           {.field = "norm_eps", .key = "layer_norm_eps", .absent = 1e-5}};

constexpr LinearOptions kWhole = {.whole_path = true};

std::vector<InputSpec> inputs(const ModelSpec& spec, const BatchSize&) {
  return {{.name = "frames",
           .per = Per::row,
           .inner = {spec.channels, spec.image_size, spec.image_size},
           .type = HostType::real},
          {.name = "captions", .bound = spec.vocab},
          positions_input()};
}

std::vector<OutputSpec> outputs(const ModelSpec&) {
  return {{.name = "answer", .as = "logits"}};
}

std::vector<StackSpec> stacks(const ModelSpec& spec) {
  return {{"encoder", spec.layers}, {"decoder", spec.layers}};
}

ValueId attended(Blocks& b, ValueId x, ValueId read, const std::string& path,
                 const AttentionOptions& options) {
  const int64_t width = b.spec().hidden;
  const ValueId q = b.linear(x, path + ".q", width, kWhole);
  const ValueId k = b.linear(read, path + ".k", width, kWhole);
  const ValueId v = b.linear(read, path + ".v", width, kWhole);
  return b.linear(b.attention(q, k, v, options), path + ".out", width,
                  {.use = MatrixUse::residual, .whole_path = true});
}

ValueId mlp(Blocks& b, ValueId x) {
  return b.linear(b.gelu(b.linear(x, "up", b.spec().ffn), "act"), "down", b.spec().hidden,
                  {.use = MatrixUse::residual});
}

Outputs build(Blocks& b) {
  const int64_t side = b.spec().image_size / b.spec().patch_size, n = side * side;
  b.enter(-1, "scratch.encoder.");
  ValueId s = b.linear(b.patches(b.input("frames")), "patches", b.spec().hidden);
  s = b.add_rows(s, b.table("places", n, {n, b.spec().hidden}));
  for (int64_t i = 0; i < b.layers("encoder"); ++i) {
    b.enter_layer("encoder", i, fmt::format("scratch.encoder.layers.{}.", i));
    const ValueId h = b.layer_norm(s, "norm");
    s = b.add(s, attended(b, h, h, "self_attn", {.mask = AttentionMask::full}));
    s = b.add(s, mlp(b, b.layer_norm(s, "mlp_norm")));
  }
  b.enter(-1, "scratch.encoder.");
  s = b.layer_norm(s, "last_norm");
  b.enter(-1, "scratch.decoder.");
  ValueId x = b.embedding("words", "captions", b.spec().vocab);
  x = b.add(x, b.position_embedding("positions"));
  for (int64_t i = 0; i < b.layers("decoder"); ++i) {
    b.enter_layer("decoder", i, fmt::format("scratch.decoder.layers.{}.", i));
    const ValueId h = b.layer_norm(x, "norm");
    x = b.add(x, attended(b, h, h, "self_attn", {}));
    x = b.add(x, attended(b, b.layer_norm(x, "cross_norm"), s, "cross_attn",
                          {.mask = AttentionMask::full, .keys = AttentionKeys::fixed}));
    x = b.add(x, mlp(b, b.layer_norm(x, "mlp_norm")));
  }
  b.enter(-1, "scratch.decoder.");
  return {b.linear(b.layer_norm(x, "last_norm"), "answer", b.spec().vocab)};
}

}  // namespace

const ModelDef kScratch = {.kind = ModelKind::scratch,
                           .name = "scratch",
                           .architecture = "ScratchForCaptions",
                           .prefix = "scratch.",
                           .head = "scratch.decoder.answer.weight",
                           .positions = Positions::learned,
                           .mlp = MlpKind::gelu,
                           .grouped_heads = false,
                           .hf_keys = kKeys,
                           .own_hf_keys = {},
                           .hf_neutrals = {},
                           .build = build,
                           .inputs = inputs,
                           .outputs = outputs,
                           .stacks = stacks,
                           .writes_text = false,
                           .reads_images = true};

}  // namespace octet
""")
    list_model(scratch)


CAPTIONS_RUN = """
model: {kind: scratch, hidden: 32, layers: 2, heads: 2, ffn: 64, vocab: 16, seq: 8, image_size: 8, patch_size: 4, channels: 1}
recipe: fp32
optim: {lr: 1.0e-2, warmup: 10}
data: {train: [samples.safetensors], val: [samples.safetensors]}
train: {steps: 200, batch: 16, eval_every: 100, eval_bytes: 100000, save_every: 100}
out: run
"""


def write_captions(path, n=64, seq=8, vocab=16, side=8):
    """The word behind each of a caption is as many further on as the row of the frame that is bright."""
    random = Random(1)
    frames, captions, labels = [], [], []
    for sample in range(n):
        bright = sample % side
        frames += [float(row == bright) + random.gauss(0, 0.1) for row in range(side) for _ in range(side)]
        words = [random.randrange(vocab) for _ in range(seq)]
        captions += words
        labels += [(word + bright) % vocab for word in words]
    header, parts, at = {}, [], 0
    for name, kind, shape, code, values in (("frames", "F32", [n, 1, side, side], "f", frames),
                                            ("captions", "I32", [n, seq], "i", captions),
                                            ("labels", "I32", [n, seq], "i", labels)):
        parts.append(struct.pack(f"<{len(values)}{code}", *values))
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def losses_of(run, key):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if key in line]


SOURCE_PROBE = """// Texts about two frames, over caches of what the encoder made of them and without a cache.
#include <algorithm>
#include <cstdio>

#include "backends/cpu/backend.h"
#include "base/error.h"
#include "infer/text_model.h"

using namespace octet;

constexpr int32_t kWords[] = {1, 5, 9, 13, 2, 6, 10, 14};
constexpr int64_t kBright[] = {3, 6}, kSide = 8, kFilled = 3;

int main() {
  const ModelSource source = find_model_source(posix_files(), "run");
  cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa(), cpu::RowSums::same);
  const TextMachine machine{posix_files(), *backend.device, *backend.catalogue};
  Batch frames{.batch = 2, .seq = 1};
  frames.add(model_def(source.spec.kind).inputs(source.spec, {}).front());
  for (int64_t entry = 0; entry < 2; ++entry) {
    for (int64_t col = 0; col < kSide; ++col)
      frames.reals("frames")[static_cast<size_t>((entry * kSide + kBright[entry]) * kSide + col)] = 1;
  }
  std::vector<std::vector<float>> all;
  int n_faults = 0;
  for (const auto make : {make_cached_model, make_recomputed_model}) {
    const auto model = make(source, {.n_entries = 2, .capacity = 8}, machine);
    std::vector<float>& seen = all.emplace_back();
    std::vector<float> last;
    try {
      model->logits(std::vector<TextChunk>{{0, 0, std::span(kWords).first(1)}}, {});
      ++n_faults;  // without a source
    } catch (const Error&) {
    }
    // Frames differ, and texts about one frame do not.
    const auto read = [&](int64_t first, bool about_one) {
      std::vector<TextChunk> pieces;
      for (int64_t entry = 0; entry < 2; ++entry)
        pieces.push_back({entry, first, std::span(kWords).subspan(static_cast<size_t>(first), 1)});
      model->logits(pieces, [&](const TextChunk& piece, int64_t, std::span<const float> logits) {
        if (piece.entry == 1) n_faults += std::ranges::equal(logits, last) == about_one ? 0 : 1;
        last.assign(logits.begin(), logits.end());
        seen.insert(seen.end(), logits.begin(), logits.end());
      });
    };
    model->read_source(frames);
    model->fill(std::vector<TextChunk>{{0, 0, std::span(kWords).first(kFilled)},
                                       {1, 0, std::span(kWords).first(kFilled)}});
    for (int64_t t = kFilled; t < std::ssize(kWords); ++t) read(t, false);
    model->copy_prefix(kFilled);  // both are now about the first frame
    read(kFilled, true);
  }
  if (all[0] != all[1]) ++n_faults;
  std::printf("%d faults\\n", n_faults);
  return n_faults == 0 ? 0 : 1;
}
"""


def write_about_a_source(scratch):
    """The same weights as a model that writes text: by caches of its source, bit for bit as from the whole."""
    model = scratch.root / "src/nn/scratch.cpp"
    text = model.read_text().replace('"captions"', '"tokens"').replace('.name = "answer", .as = "logits"', '.name = "logits"')
    model.write_text(text.replace(".writes_text = false,", ".writes_text = true,"))
    (scratch.root / "cli/probe.cpp").write_text(SOURCE_PROBE)
    objects = [scratch.compile("cli/probe.cpp", "cli/main.cpp"), scratch.compile("src/nn/scratch.cpp", "src/nn/vit.cpp"),
               scratch.compile("src/nn/model.cpp")]
    program = scratch.work / "probe"
    scratch.link(objects, program, replace=True)
    scratch.run([str(program)])


def use_encoder_decoder(scratch):
    program, work = str(program_with_model(scratch, "src/nn/vit.cpp")), scratch.work
    (work / "captions.yaml").write_text(CAPTIONS_RUN)
    write_captions(work / "samples.safetensors")
    train_it = [program, "train", "captions.yaml", "--quiet"]
    scratch.run(train_it)
    fit, told = losses_of(work / "run", "loss")[-1], losses_of(work / "run", "val_loss")
    if fit > 0.05 or told[-1] > 0.05:
        raise Failed(f"64 samples were not fit: loss {fit}, evaluated {told}")
    # Half a run and the rest of it are the whole one, bit by bit.
    shutil.copytree(work / "run", work / "half")
    shutil.rmtree(work / "half/ckpt" / max(path.name for path in (work / "half/ckpt").glob("step-*")))
    scratch.run(train_it + ["--set", "out=half", "--resume"])
    weights = [max((work / out / "ckpt").glob("step-*/model.safetensors")).read_bytes() for out in ("run", "half")]
    if weights[0] != weights[1]:
        raise Failed("a resumed run has other weights")
    # By every kind of recipe, with what a stack of its own has.
    for sets in (["recipe=bf16"], ["recipe=coat"], ["recipe={base: coat, override: {'encoder.layers.*': bf16}}"]):
        words = [word for one in sets for word in ("--set", one)]
        scratch.run(train_it + words + ["--set", "out=other", "--set", "train.steps=3"])
        shutil.rmtree(work / "other")
        for device in ("cpu", "cuda"):
            plan = json.loads(scratch.run([program, "plan", "captions.yaml", "--json", "--device", device] + words))
            if plan["layer_names"] != [f"{stack}.layers.{i}" for stack in ("encoder", "decoder") for i in (0, 1)]:
                raise Failed(f"layers are called {plan['layer_names']}")
            if "\nkept for the backward of decoder.layers.0: " not in scratch.run(
                    [program, "plan", "captions.yaml", "--device", device] + words):
                raise Failed("the plan says nothing of the decoder's layers")
    data = ["--data", "samples.safetensors"]
    evaluated = json.loads(scratch.run([program, "eval", "--model", "run", "--json"] + data))
    ptq = ["--format", "e4m3", "--method", "max", "--calib", "samples.safetensors", "--eval", "samples.safetensors"]
    quantized = json.loads(scratch.run([program, "ptq", "--model", "run", "--out", "quantized", "--json"] + ptq))
    losses = [evaluated[0]["nll"], quantized["models"][0]["nll_before"], quantized["models"][0]["nll_after"]]
    if not all(0 < loss < 0.05 for loss in losses) or abs(losses[0] - losses[1]) > 1e-6:
        raise Failed(f"evaluated, and before and after it was quantized: {losses}")
    write_about_a_source(scratch)


def add_format(scratch):
    row = """    {Dtype::e3m4, DecodeRule::ieee, 3, 4, 3, true, false, 0x7E, 0x01, 0x00, 0x7F, 0x7F,
     Rounding::rne, 30.0f, 30.0f, 30.0 * 0x1p6, 30.0 * 0x1p6,
     true, false, Dtype::e3m4},
"""
    scratch.edit("src/formats/dtype.h", r"^  boolean,", "  e3m4,\n", "before")
    scratch.edit("src/formats/dtype.h", r"^    case Dtype::boolean:",
                 '    case Dtype::e3m4:\n      return {"e3m4", 1, true, true};\n', "before")
    scratch.edit("src/formats/table.h", r"^inline constexpr FormatRow kFormats\[\] = \{\n", row)


FORMAT_PROBE = """// What a new row of the table of formats gives, beyond the table.
#include <algorithm>
#include <cstdio>
#include <cmath>
#include <vector>

#include "backends/cpu/codec/codec.h"
#include "backends/cpu/gemm/pack_codes.h"
#include "backends/cuda/params/gemm_scratch.h"
#include "config/names.h"
#include "formats/codec.h"
#include "math/moment.h"
#include "optim/state_format.h"

using namespace octet;

int main() {
  constexpr Dtype kNew = Dtype::e3m4;
  int n_faults = 0;
  const auto expect = [&](bool holds, const char* what) {
    if (!holds) std::printf("wrong: %s\\n", what);
    n_faults += holds ? 0 : 1;
  };
  std::vector<uint8_t> codes;
  std::vector<float> values;
  for (uint32_t code = 0; code < 256; ++code) {
    const float x = decode(kNew, code);
    if (!std::isfinite(x)) continue;
    codes.push_back(static_cast<uint8_t>(code));
    values.push_back(x);
    expect(encode(kNew, x) == code, "a value is its code's");
  }
  expect(codes.size() == 254 && max_finite(kNew) == 30.0f, "values");
  std::vector<float> decoded(codes.size());
  std::vector<uint8_t> encoded(codes.size());
  std::vector<uint16_t> bf16(codes.size());
  for (const cpu::Codec& codec : {cpu::scalar_codec(kNew), cpu::simd_codec(kNew)}) {
    codec.decode_f32(codes.data(), codes.size(), 1.0f, decoded.data());
    codec.encode_f32(values.data(), values.size(), 1.0f, encoded.data());
    codec.decode_bf16(codes.data(), codes.size(), bf16.data());
    expect(decoded == values && encoded == codes, "bulk codec");
    for (size_t i = 0; i < bf16.size(); ++i) expect(decode(Dtype::bf16, bf16[i]) == values[i], "BF16");
  }
  for (const char* name : {"e3m4", "e3m4+x", "e3m4_sr", "e3m4_sr+x"})
    expect(state_format_from_name(name).dtype == kNew, "state");
  expect(is_one_of(override_formats(), "e3m4"), "operand of a linear");
  const cuda::GemmParams product{.m = 64, .n = 64, .k = 64, .a = kNew, .b = kNew, .trans_b = true,
                                 .kind = cuda::GemmKind::decoded};
  expect(!cuda::runs_in_fp8(product), "a GPU decodes it");
  expect(cuda::gemm_scratch_bytes(product) > cuda::kGemmWorkspace, "and reserves for that");
  std::printf("%d faults\\n", n_faults);
  return n_faults == 0 ? 0 : 1;
}
"""


def use_format(scratch):
    sources = ["src/formats/codec.cpp", "src/optim/state_format.cpp", "src/config/names.cpp",
               "src/backends/cpu/codec/codec.cpp"]
    (scratch.root / "cli/probe.cpp").write_text(FORMAT_PROBE)
    objects = [scratch.compile(source) for source in sources]
    probe = scratch.compile("cli/probe.cpp", "cli/main.cpp")
    program = scratch.work / "probe"
    scratch.link([probe] + objects, program, replace=True)
    scratch.run([str(program)])


def add_element(scratch):
    """On the CPU, with its gradient, and on a GPU."""
    scratch.edit("src/ir/ops/ops.def", r"^OP\(stop_gradient, .*\n", "OP(cube, Unary, NoAttrs)\n")
    scratch.edit("src/math/elementwise.def", r"^ELEMENT\(square, .*\n", "ELEMENT(cube, unary, f32, a * a * a)\n")
    scratch.edit("src/ir/ops/elementwise.cpp", r"^ValueId d_square\([^}]*\}\n", """ValueId d_cube(Builder& b, ValueId dy, ValueId x, ValueId) {
  return b.mul(b.scaled(dy, 3), b.unary(OpCode::square, x));
}
std::optional<ValueId> e_cube(ErrorBounds& e, const Node& node) {
  const ValueId x = node.operands[0], square = e.b.unary(OpCode::square, e.size(x));
  return e.sum(e.product(e.b.scaled(square, 3), e.error(x)), e.size(node.results[0]));
}
""")
    scratch.edit("src/ir/ops/elementwise.cpp", r"^constinit const OpDef defs::square =[^;]*;\n",
                 "constinit const OpDef defs::cube = unary<OpCode::cube, d_cube>(scale::of_values, e_cube);\n")


def add_collective(scratch):
    """On the CPU: who sends to whom is one function of a new file; a GPU's needs a KernelId and a kernel too."""
    scratch.edit("src/ir/ops/ops.def", r"^OP\(all_reduce, [^)]*\)\n", "OP(scan, Unary, CollectiveAttrs, .is_collective = true)\n")
    scratch.edit("src/ir/ops/ranks.cpp", r"^constinit const OpDef defs::all_reduce =[^;]*;\n",
                 "constinit const OpDef defs::scan = define(OpCode::scan, {.infer = infer_scan});\n")
    scratch.edit("src/ir/ops/ranks.cpp", r"^constexpr ScalePlace kScaleOfSum", """// Of this rank and those before it.
Results infer_scan(const Attrs& attrs, Types in) {
  need_ranks("scan", std::get<CollectiveAttrs>(attrs).ranks);
  need_float("scan", "x", in[0]);
  return {real(in[0].shape)};
}

""", "before")
    scratch.edit("src/backends/cpu/reference/ranks.cpp", r"^void all_reduce\([^}]*\}\n", """void scan(const RefCall& call) {
  expect_alone(call);
  copy(call);
}
""")
    scratch.add("src/backends/cpu/ranks/scan.h", """// Sums over a rank and those before it, of the test of additions.
#pragma once

#include "backends/cpu/ranks/ranks.h"

namespace octet::cpu {

// y: x of rank 0 + ... + x of this rank, cut.n of each.
void scan(const Cut& cut, std::span<const float> x, std::span<float> y);

}  // namespace octet::cpu
""")
    scratch.add("src/backends/cpu/ranks/scan.cpp", """#include "backends/cpu/ranks/scan.h"

#include <algorithm>

namespace octet::cpu {

void scan(const Cut& cut, std::span<const float> x, std::span<float> y) {
  const std::vector<float> all = gather_values<float>(cut.group, x);
  std::ranges::fill(y, 0.0f);
  const size_t n_read = x.size() * static_cast<size_t>(cut.rank() + 1);
  for (size_t i = 0; i < n_read; ++i) y[i % y.size()] += all[i];
}

}  // namespace octet::cpu
""")
    scratch.edit("src/backends/cpu/bind/ranks.cpp", r"^const Binding kRanksBindings", """bool is_of_f32(const NodeView& view) {
  return view.in(Unary::x).dtype == Dtype::f32 && view.out(Unary::y).dtype == Dtype::f32;
}
LaunchFn prepare_scan(const NodeView& view, Context& context) {
  return launcher(view, context, [cut = cut_of(view, context, view.in(Unary::x))](const Call& call) {
    const auto n = static_cast<size_t>(cut.n);
    scan(cut, {call.data<float>(Unary::x), n}, {call.result<float>(Unary::y), n});
  });
}

""", "before")
    scratch.edit("src/backends/cpu/bind/ranks.cpp", r"^const Binding kRanksBindings\[\] = \{\n",
                 '    {{OpCode::scan, "ranks", is_of_f32}, prepare_scan},\n')
    scratch.edit("src/backends/cpu/bind/ranks.cpp", r'^#include "backends/cpu/ranks/ranks.h"\n', '#include "backends/cpu/ranks/scan.h"\n')


def add_optimizer(scratch):
    """Lion, with a momentum in any format and on any number of ranks."""
    enums = "src/ir/attr_enums.h"
    scratch.edit(enums, r"^enum class UpdateKind : uint8_t \{ adamw, sgd, muon, lamb", ", lion")
    scratch.edit(enums, r'^  return name_list\("adamw", "sgd", "muon", "lamb"', ', "lion"')
    scratch.edit("src/optim/rules/rule.h", r"^extern const UpdateRule kAdamwRule, kSgdRule, kMuonRule, kLambRule", ", kLionRule")
    scratch.edit("src/optim/rules/rule.cpp", r"&kSgdRule, &kMuonRule, &kLambRule", ", &kLionRule")
    scratch.add("src/optim/rules/lion.cpp", """// Lion, of the test of additions.
#include "optim/rules/stored.h"

namespace octet {
namespace {

void build_lion(UpdateBuilder& u) {
  const OptimPolicy& policy = u.policy();
  StoredUpdate update(u);
  const Term g = update.gradient();
  const ValueId m = update.load(StateUse::momentum), one = u.constant(1), back = u.product(u.lr(), u.constant(-1));
  const auto mean = [&](double beta) {
    return u.sum({m, u.constant(beta)}, {g.value, u.product(g.factor, u.constant(1 - beta))});
  };
  const ValueId sign = u.b().unary(OpCode::sign, mean(policy.beta1));
  const ValueId decay = u.product(u.lr(), u.constant(u.attrs().decay ? policy.weight_decay : 0));
  update.store(StateUse::momentum, mean(policy.momentum));
  update.store_weight(u.sum({update.weight(), u.difference(one, decay)}, {sign, back}));
}

}  // namespace

constinit const UpdateRule kLionRule = {
    .kind = UpdateKind::lion, .states = momentum_states, .build = build_lion};

}  // namespace octet
""")


def add_loss(scratch):
    """A preference without a reference model: of two rows the first one's mean nll lies lower, by a margin."""
    scratch.add("src/nn/losses/scratch.cpp", """// A loss of the test of additions: max(0, 1 + nll[2i] - nll[2i + 1]) of rows' mean nll.
#include "nn/blocks.h"
#include "nn/losses/list.h"
#include "nn/losses/parts.h"

namespace octet {
namespace {

LossValues build(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const int64_t rows = blocks.size().batch, seq = blocks.size().seq;
  const ValueId nll =
      blocks.cross_entropy(call.output, blocks.input("labels"), call.inv_n).metrics[0].value;
  const ValueId of_rows =
      b.scaled(b.reduce_sum(b.reshape(nll, {rows, seq}), {1}), 1 / static_cast<double>(seq));
  const Pairs pair = pairs_of(b, of_rows);
  const ValueId gap = b.plus(b.sub(pair.first, pair.second), 1);
  const ValueId hinge = b.emit1(OpCode::maximum, NoAttrs{}, {gap, b.fill_like(gap, 0)});
  return {b.mul(call.inv_n, b.reduce_sum(hinge, {0})), {{"hinge", hinge}}};
}

}  // namespace

const LossDef kScratchLoss = {
    .name = "scratch",
    .help = "of two rows the first one is likelier",
    .output = "logits",
    .inputs = [](const ModelSpec&) { return std::vector<InputSpec>{token_labels_input()}; },
    .counted = "samples",
    .rows_per_sample = 2,
    .metrics = {"hinge"},
    .build = build};

}  // namespace octet
""")
    scratch.edit("src/nn/losses/list.h", r"^extern const LossDef \w+;\n(?!extern)", "extern const LossDef kScratchLoss;\n")
    scratch.edit("src/nn/losses/list.cpp", r"constexpr const LossDef\* kLosses\[\] = \{", "&kScratchLoss, ")


def use_loss(scratch):
    files = ["src/nn/losses/scratch.cpp", "src/nn/losses/list.cpp"]
    like = {files[0]: "src/nn/losses/pairwise.cpp"}
    program = scratch.work / "octet"
    scratch.link([scratch.compile(file, like.get(file)) for file in files], program)
    train(scratch, program, ["train.loss=scratch"])
    if "loss: scratch" not in (scratch.work / "run/config.yaml").read_text():
        raise Failed("config.yaml does not say the loss")


def add_state(scratch):
    """The running mean of a weight, kept by SGD."""
    scratch.edit("src/ir/states.h", r"^  kv_cache, ", "  weight_mean,          // the running mean of a parameter\n", "before")
    scratch.edit("src/ir/states.cpp", r"^    generated\(of_site\(kv_cache", '    of_update(weight_mean, "weight_mean", "weight_mean:"),\n', "before")
    sgd = "src/optim/rules/sgd.cpp"
    scratch.edit(sgd, r"^void build_sgd\(", """std::vector<RuleState> sgd_states(const TensorType& weight, const OptimPolicy& policy) {
  std::vector<RuleState> states = momentum_states(weight, policy);
  states.push_back({StateUse::weight_mean, {Dtype::f32, weight.shape}});
  return states;
}

""", "before")
    scratch.edit(sgd, r"^  update\.store_weight\([^;]*;\n", """  const ValueId old = u.state(StateUse::weight_mean);
  const ValueId mean = u.sum({old, u.constant(0.99)}, {update.weight(), u.constant(0.01)});
  const ValueId skips = u.b().broadcast(u.skipped(), u.b().shape(mean), {});
  u.set(StateUse::weight_mean, u.b().select(skips, old, mean));
""")
    scratch.edit(sgd, r"^ *\.states = (?=momentum_states)", "sgd_states, // ")


def add_key(scratch):
    """A bound of the run's guards."""
    scratch.edit("src/config/run_config.h", r"^  int64_t max_zero_gradients = .*\n", "  int64_t max_slow_steps = 0;  // 0: any number\n")
    scratch.edit("src/config/train_rows.cpp", r'^    \{"train\.max_zero_gradients"',
                 """    {"train.max_slow_steps", open, OCTET_FIELD(train.max_slow_steps), within(0, kMaxSteps), "steps",
     "steps in a row that may be slow before the run stops; 0: any number"},
""", "before")
    scratch.edit("src/train/run_guards.cpp", r"^void RunGuards::check_gradient\([^{]*\{\n",
                 '  if (config_.max_slow_steps > 0) log.warning("slow steps are not counted");\n')


def add_task(scratch):
    """The opposite of a word, from a file of its own."""
    scratch.add("src/infer/tasks/opposites.cpp", """// A task of the test of additions.
#include "data/json_values.h"
#include "infer/tasks/task.h"

namespace octet {

TaskData read_opposites(const TaskQuery& query) {
  expect_no_shots(query);
  const std::string path = find_task_file(query, {"opposites/test.jsonl", "opposites.jsonl"});
  TaskData data{.split = "test", .has_norm = false};
  JsonValues values(query.files, path);
  while (const auto value = values.next()) {
    const std::string where = fmt::format("{}:{}", path, value->line);
    const OrderedJson row = parse_ordered_json(value->text, where);
    TaskDocument document{.id = fmt::to_string(data.documents.size())};  // gold: the first choice
    for (const char* key : {"opposite", "synonym"}) {
      document.choices.push_back(
          spaced_choice("The opposite of " + text_of(row, "word") + " is", text_of(row, key)));
    }
    data.documents.push_back(std::move(document));
  }
  return data;
}

}  // namespace octet
""")
    scratch.edit("src/infer/tasks/task.h", r"^TaskData read_svamp\(const TaskQuery& query\);\n",
                 "TaskData read_opposites(const TaskQuery& query);\n")
    scratch.edit("src/infer/tasks/list.cpp", r"^constexpr TaskDef kTasks\[\] = \{\n",
                 '    {"opposites", "the opposite of a word", read_opposites},\n')


def add_kernel_variant(scratch):
    """A second row of the rotary embedding on a GPU, for one type."""
    scratch.edit("src/backends/cuda/kernel_id.h", r"^  rope,\n", "  rope_whole,\n")
    rows = "src/backends/cuda/target/bind/rows.cpp"
    scratch.edit(rows, r"^bool rope_may_join\(", """bool rope_whole_applies(const NodeView& view) {
  return rope_applies(view) && view.in(Rope::x).dtype == Dtype::bf16;
}
KernelSpec rope_whole_spec(const NodeView& view) {
  KernelSpec spec = rope_spec(view);
  spec.kernel = KernelId::rope_whole;
  return spec;
}

""", "before")
    scratch.edit(rows, r"^    \{\{\.op = OpCode::rope,\n", """    {{.op = OpCode::rope, .name = "whole", .applies = rope_whole_applies}, rope_whole_spec},
""", "before")
    scratch.edit("src/backends/cuda/kernels/rope/rope.cu", r"^const KernelEntry kRows\[\] = \{", "{KernelId::rope_whole, prepare_rope}, ")


def add_quantized_form(scratch, name, slots, attrs):
    """The op that gives the layer's result as codes."""
    scratch.edit("src/ir/attrs.h", r"GatedActQuantizeAttrs, GeluQuantizeAttrs, ", f"LayerQuantizeAttrs<{attrs}Attrs>, ")
    scratch.edit("src/ir/ops/ops.def", r"^OP\(gelu_quantize, ", f"""OP({name}_quantize, {slots}Quantize, LayerQuantizeAttrs<{attrs}Attrs>, .is_composed = true,
   .store = kStore<{slots}Quantize>, .kept = {slots}Quantize::kept_x, .closeness = Closeness::one_code)
""", "before")
    scratch.edit("src/ir/ops/quantize_layers.cpp", r"^constinit const OpDef defs::gelu_quantize =", f"""constinit const OpDef defs::{name}_quantize =
    fused<OpCode::{name}_quantize, {slots}Quantize>(kScaleOfX<{slots}Quantize>);
""", "before")


def add_layer(scratch):
    """A leaky ReLU with its gradient, of values and of codes, with a quantizer of its result: all kernels of both back ends."""
    scratch.edit("src/ir/attrs.h", r"^// Quantizers: the magnitude that amax", """struct LeakyAttrs {
  bool amax = false;
  OCTET_ATTRS(LeakyAttrs) { f("amax", s.amax); }
};
""", "before")
    scratch.edit("src/ir/attrs.h", r" GatedActAttrs, GeluAttrs,", " LeakyAttrs,")
    add_quantized_form(scratch, "leaky", "Gelu", "Leaky")
    scratch.edit("src/ir/ops/ops.def", r"^OP\(gelu, ", """OP(leaky, Gelu, LeakyAttrs, .is_composed = true, .needs_unscaled = {Gelu::x},
   .quantized = OpCode::leaky_quantize, .saves = true)
OP(leaky_grad, GeluGrad, LeakyAttrs, .is_composed = true, .needs_unscaled = {GeluGrad::x},
   .amax_results = 1, .saves = true, .is_gradient = true)
""", "before")
    activation = "src/ir/ops/activation.cpp"
    scratch.edit(activation, r"^constexpr InplacePair kInplaceGradient", """Values vjp_leaky(Builder& b, const VjpCall& call) {
  const Node& n = call.node;
  return b.emit(OpCode::leaky_grad, n.attrs, {call.dresults[0], n.operands[0]});
}
Values decompose_leaky(Builder& b, const Node& node) {
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId x = node.operands[0];
  return {b.emit1(OpCode::maximum, NoAttrs{}, {x, b.scaled(x, 0.125)})};
}
Values decompose_leaky_grad(Builder& b, const Node& node, Said said) {
  if (emits_amax(node.attrs)) return emit_with_amax(b, node, said);
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId dy = node.operands[0], x = node.operands[1];
  const ValueId is_below = b.emit1(OpCode::less, NoAttrs{}, {x, b.fill_like(x, 0)});
  return {b.select(is_below, b.scaled(dy, 0.125), dy)};
}

""", "before")
    scratch.edit(activation, r"^constinit const OpDef defs::gelu =", """constinit const OpDef defs::leaky = define(OpCode::leaky, {.infer = infer_gelu<OpCode::leaky>,
                                                           .vjp = vjp_leaky,
                                                           .decompose = decompose_leaky,
                                                           .scale = scale::of_steps,
                                                           .cost = cost_per_result<2>,
                                                           .inplace = kInplaceFirst,
                                                           .scales = kScaleOfX<Gelu>});
constinit const OpDef defs::leaky_grad =
    define(OpCode::leaky_grad, {.infer = infer_gelu<OpCode::leaky_grad>,
                                .decompose = decompose_leaky_grad,
                                .scale = scale::of_steps,
                                .cost = cost_per_result<3>,
                                .inplace = kInplaceEither,
                                .scales = kScaleOfX<GeluGrad>});
""", "before")
    scratch.edit("src/ir/ops/quantize_layers.cpp", r"^  const auto\* gelu = std::get_if<GeluAttrs>",
                 "  if (std::holds_alternative<LeakyAttrs>(attrs)) return RowLayer::leaky;\n", "before")
    arithmetic = "src/math/row_layers.h"
    scratch.edit(arithmetic, r"gelu_tanh, gelu_erf", ", leaky")
    scratch.edit(arithmetic, r"unary_activation\(RowLayer layer, float x\) \{\n",
                 "  if (layer == RowLayer::leaky) return x < 0 ? 0.125f * x : x;\n")
    scratch.edit(arithmetic, r"unary_slope\(RowLayer layer, float x\) \{\n",
                 "  if (layer == RowLayer::leaky) return x < 0 ? 0.125f : 1.0f;\n")
    vectors = "src/backends/cpu/elementwise/elementwise.cpp"
    scratch.edit(vectors, r"HWY_INLINE VF unary_activation\(VF x\) \{\n",
                 "  if constexpr (kLayer == RowLayer::leaky) return hn::Max(x, hn::Mul(x, set(0.125f)));\n")
    scratch.edit(vectors, r"HWY_INLINE VF unary_slope\(VF x\) \{\n", """  if constexpr (kLayer == RowLayer::leaky)
    return hn::IfThenElse(hn::Lt(x, zero()), set(0.125f), set(1.0f));
""")
    scratch.edit(vectors, r"void visit_activation\(RowLayer layer, F&& f\) \{\n",
                 "  if (layer == RowLayer::leaky) return f.template operator()<RowLayer::leaky>();\n")


ADDITIONS = {  # name: existing files at most, what is added, how it is used (None: all sources would have to be compiled)
    "recipe": (2, add_recipe, use_recipe),
    "granularity": (3, add_granularity, use_granularity),
    "model": (1, add_model, use_model),
    "encoder-decoder": (1, add_encoder_decoder, use_encoder_decoder),
    "format": (4, add_format, use_format),
    "loss": (2, add_loss, use_loss),
    "element-wise op": (4, add_element, None),
    "collective": (6, add_collective, None),
    "optimizer": (3, add_optimizer, None),
    "state": (3, add_state, None),
    "configuration key": (3, add_key, None),
    "evaluation task": (2, add_task, None),
    "kernel variant": (3, add_kernel_variant, None),
    "layer op with quantized forms": (6, add_layer, None),
    "quantized form of a layer": (3, lambda scratch: add_quantized_form(scratch, "leaky", "Gelu", "Leaky"), None),
}


def measure(name, source, build):
    most, add, use = ADDITIONS[name]
    with tempfile.TemporaryDirectory(prefix="octet-additions-") as folder:
        scratch = Scratch(source, Path(folder), build)
        add(scratch)
        is_used = build is not None and use is not None
        if is_used:
            use(scratch)
        touched = sorted(scratch.touched)
    print(f"{name}: {len(touched)} existing files of at most {most}: {', '.join(touched)}"
          + ("; it works" if is_used else ""))
    if len(touched) > most:
        raise Failed(f"more than {most} existing files")


def make_build(source, build):
    """The program from sources compiled one by one: an object of the build can be replaced alone."""
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DOCTET_UNITY=OFF", "-DOCTET_PCH=OFF", "-DOCTET_TESTS=OFF"]
    for command in (["cmake", "-S", source, "-B", build, "-G", "Ninja", *options], ["cmake", "--build", build, "--target", "octet"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=Path(__file__).resolve().parent.parent.parent)
    parser.add_argument("--build", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    build = arguments.build.resolve() if arguments.build else None
    if build is not None:
        make_build(arguments.source.resolve(), build)
    n_failed = 0
    for name in arguments.names or ADDITIONS:
        try:
            measure(name, arguments.source.resolve(), build)
        except Failed as failure:
            n_failed += 1
            print(f"{name}: {failure}")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
