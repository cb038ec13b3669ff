#include "nn/models_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "nn/hf_config.h"
#include "nn/hf_keys.h"
#include "nn/list.h"
#include "nn/model.h"

namespace octet {
namespace {

constexpr std::string_view kIntroduction =
    R"(# Models that are read and written

`octet train`, `eval`, `generate` and `convert` take a model folder as the Hugging Face ecosystem
ships it: `config.json`, `model.safetensors` or shards with `model.safetensors.index.json`, and
the files of a tokenizer ([tokenizers.md](tokenizers.md)). This page is made by `octet docs
models`.

## Architectures

)";

constexpr std::string_view kEncoders = R"(
The class that `architectures` names says what stands on an encoder. Of a class without a head of
Octet's (tokens' classes, choices, the next sentence, a teacher, hidden patches) the body is read,
and `model.head` gives it a head; of BERT's pretraining the hidden tokens' head is read, too.
`convert` and `ptq` write the rest of such a head, and every encoder's pooler, as they are, and an
export of a run those of the folder it began with, if it is still there. `LayerNorm.gamma` and
`.beta` of old files are read as `weight` and `bias`.

| `model_type` | classes |
| --- | --- |
)";

constexpr std::string_view kKeys = R"(
## Keys of config.json

Each key is in one of three lists. **Used** keys make the model; both spellings are read,
transformers 4's (`rope_theta`, `rope_scaling`) and 5's (`rope_parameters`), and both are
written. **Neutral** keys would change the model in a way that Octet does not implement: any other
value is refused by name. **Harmless** keys concern training, generation and software, and are
passed over: `./dev parity --neutral-keys` gives each of them other values and shows that
transformers' outputs stay ([neutral_keys.csv](results/neutral_keys.csv)). Training has no dropout,
and an embedding of padding has a gradient, whatever `pad_token_id` says. A key
in none of the lists is a warning, with `--strict` an error. `auto_map` (code in the
folder) and pickle files are refused and never run. `layer_types` says which layers have a sliding
window, where a model has the key; of others it must agree with the keys above it, and so must
`no_rope_layers`. `rope/KEY` stands for a key of `rope_scaling` or `rope_parameters`; where
`rope_parameters` has an object for each sort of layer, of `full_attention`.

)";

constexpr std::string_view kWeights = R"(
## Weights

Tensors are read in F32, BF16 or F16, and in 8 bits where `quantization_config` names one of three
methods: `fp8` (E4M3 with a `weight_scale_inv` for each block of `weight_block_size`, or with one
`weight_scale`), `compressed-tensors` (format `float-quantized`, `int-quantized` or
`mxfp8-quantized`; strategy `tensor`, `channel`, `group` or `block`) and `octet`
([formats/quantized.md](formats/quantized.md), which also says which linears are of which group, and
which keys are named). `octet eval` and `octet generate` quantize these linears' inputs as
`quantization_config` says. Several threads read the files in pieces, straight
into the plan's memory. A tied head may be absent from the files, or stand there without the
embedding; where the files hold one that differs from the embedding, it becomes a parameter of its
own with a warning, as in transformers. Masks and inverse frequencies beside the parameters are
ignored.

`octet convert RUN|DIR OUT [--dtype bf16|f32|fp8-block|fp8-tensor|hif8|as-base]` writes such a
folder (`--max-shard 5GB`: in files of at most so many bytes). Without `--dtype` each tensor's
bytes stay as they are. From a run, BF16 is the copy that it computes with and f32 the exact
master. `fp8-block` writes a scale for each 128 x 128 block of the decoder layers' linears,
`fp8-tensor` one for each linear; embeddings, norms, biases and head stay BF16, and q, k, v, gate
and up are separate tensors. A run of `fp8_linear`, `coat` or `fp8_lm` has one f32 scale for q, k
and v and one for gate and up, and `fp8-tensor` holds its codes and scales; of other runs each
tensor has its own BF16 scale. Blocks at the edges are smaller, as the kernels that read them
expect. `convert` warns of weights with whole blocks and a smaller one, which transformers
refuses, or misreads where it dequantizes (`dequantize=True`). `as-base` writes a run that began
with a folder of FP8 weights in that folder's form ([finetuning.md](finetuning.md)),
`--add-tokens FILE` tokens behind the vocabulary. `hif8` writes the same linears in HiFloat8 with
one f32 scale each, in [Octet's own layout](formats/quantized.md), since no other program has
one. transformers ends with "module 'torch' has no attribute 'hifloat8'", and
`quantization_config.description` says why.

`convert` copies the tokenizer's files, `generation_config.json`, the chat template and
`additional_chat_templates/*.jinja`: regular files of at most 128 MiB, and links into the hub's
cache (`MODEL/blobs`), which all files of a snapshot are. It follows no other links. The tokenizer
of a run is the one that it was trained with, whatever its model's folder has; a file that a run
names (`olmo.json`, say) becomes `tokenizer.json`. A run on conversations exports the chat template
that it was trained with: if the copied files have another one, the run's is written as
`chat_template.jinja`, and `tokenizer_config.json` loses its own and gains the special tokens that
the template names. A run that began without a model folder writes its tokenizer's ids into
`config.json`. A run on bytes gets a `tokenizer.json` of 256 tokens, one on a GGUF file's vocabulary
that vocabulary's. Settings of sentence-transformers go along ([embeddings.md](embeddings.md)).

Positions of `roberta` count on from `pad_token_id`: a table of 514 rows takes 512 tokens with 1,
510 with 3. A run that begins here takes the tokenizer's padding, and -1 where it has none, or one
that also ends texts: the first position is then row 0, in transformers, too.

`octet convert FILE.gguf OUT [--dtype f32|bf16]` makes a folder from a GGUF file, and
`octet convert RUN|DIR OUT.gguf --dtype bf16|f16|q8_0|f32` a GGUF file from a run or a folder:
[gguf.md](gguf.md). With `--verify` the export holds `octet_verify.json`, logits of fixed rows, and
`python -m octet.check_folder OUT` repeats them with other programs.

transformers 4 and 5 load what is written, with the same logits: `./dev parity`,
[results/models.md](results/models.md).

`dynamic` scaling is fixed at the run's sequence length (of a folder: `max_position_embeddings`; in
`eval`: `--seq`), and longer generation is refused. Yarn's factors are those of transformers 5.
`longrope` has its long factors where the sequence, in generation the room of the cache for prompt
and answer, is above the original length; transformers decides by the last position of each call,
so the two differ for a short text in a long sequence.

Linears that a family's files hold as one (`qkv_proj`, `gate_up_proj`) are one here, too: one
scale in 8 bits, one adapter. The factor 1 + weight of Gemma's and Nemotron's norms is computed in
single precision under every recipe. Gemma multiplies embeddings by sqrt(hidden), which
transformers rounds to the weights' type. No kernel of a GPU caps attention scores (`gemma2`):
there attention runs as its steps, whose memory grows with the square of the sequence; logits are
capped everywhere. Capped logits are whole, whatever `train.head_chunk` says. Of
multimodal folders (`gemma3`, `gemma4`, `mistral3`, `qwen3_5`) nothing is read: their text models
are `gemma3_text`, `gemma4_text`, `ministral3` and `qwen3_5_text`.

Of `opt` both orders of norms are read and embeddings that are narrower than the layers
(`project_in`, `project_out`); norms without weights, `_remove_final_layer_norm` and a `layerdrop`
are refused. `max_position_embeddings` does not count the two rows before the first position.
`gemma4_text` is dense: experts are refused. Per-layer inputs, shared keys and values and wider
heads of layers with full attention are read; `per_layer_config`, which transformers writes for
the latter, must say the same of all of these layers, and rotary positions there are
`proportional`. `layer_scalar` is not trained. In a cache, layers that share keys and values each
hold them; tensors of their own keys and values are passed over. `qwen3_5_text` is dense, too: the
gated delta rule (`gated_delta`) is computed in f32, in chunks of 32 tokens on a CPU and of 64 on a
GPU, by kernels that keep its operands alone for the backward pass; where keys have more than 256
elements, or a GPU too little shared memory for a kernel's tiles (Ampere's: above 64 elements; Ada's
and Blackwell RTX's: any), it runs as GEMMs, of which much is kept. Its state and the last inputs of
its convolution are in the cache, so that a token costs one pass of one token; a text that goes back
to an earlier token (a turn of `generate --chat` that was changed, tasks whose texts begin alike)
may be read again from its beginning. `layer_types` says which layers have it, without it
`full_attention_interval`. Heads of several tokens ahead (`mtp.*`) are passed over.
[adding/model.md](adding/model.md) says how to add a model.

`t5`, `mt5` and `marian` ([translation.md](translation.md)): tables of embeddings beside
`shared` are not read. `scale_decoder_outputs` of `t5` says whether what the head reads is divided
by sqrt(d_model); without it a file with `tie_word_embeddings: false` is not, as in transformers.
`dense_act_fn` and `is_gated_act` must be those of `feed_forward_proj`, and a Marian's decoder as
wide as its encoder (`decoder_ffn_dim`, `decoder_attention_heads`, `decoder_vocab_size`). Marian's
positions are computed; a table of other positions in its files is refused. `final_logits_bias` is
not trained. `n_positions`, or `source_positions` of Marian, is how long sources are without more.

`lstm_seq2seq` ([translation.md](translation.md)) has names of Octet's own, which no library loads:
`encoder.layers.0.ih.weight` is PyTorch's `weight_ih_l0` of a layer's `nn.LSTM`, `hh.weight`
`weight_hh_l0`, with the biases likewise, and gates in PyTorch's order.

`resnet` reads the names of transformers and of torchvision, and with `cifar` those of the public
files for CIFAR (`conv1`, `layer1.0.conv1`, `linear`), which transformers has no class for.
Exports use transformers' names, or with `cifar` the names of the CIFAR files. transformers'
`config.json` has no `image_size`; where the key is absent it is 224. Running means and variances
stay f32 in an export in BF16. `num_batches_tracked` is not read or written. With `folded_norms`
the batch norms of the files are folded into the convolutions when they are read, as `octet ptq`
does; a folder that `ptq` writes has the key, and transformers does not read it. With `groups` or
`width_per_group` (ResNeXt, wide networks) names are torchvision's, in exports too: transformers
has no such class. `mobilenet_v2` has transformers' names and reads torchvision's
(`tf_padding: false`, `layer_norm_eps: 1e-5`); its running statistics move by a tenth a step as
PyTorch's do, where transformers' class says 0.997. `vgg` and `densenet` have torchvision's names;
a `config.json` for them has the keys above, since transformers has no class.

`llava` and `idefics3` ([vision_language.md](vision_language.md)): `text_config` is read as the
folder of a decoder of its own (`llama`, `mistral`, `qwen2`, `qwen3`), with the defaults of its
class where a key is absent, and so is `vision_config` (`clip_vision_model`, `siglip_vision_model`;
`idefics3_vision`). In the table above `vision_config/KEY` is a key of that object. `smolvlm`
computes what `idefics3` does, and is read and written as that. Tensors of transformers 4, 5 and
of models in memory have different names; exports have those of the public files. What stands
behind the hidden state that is read goes along as it is. `image_seq_length` is computed, and
`tie_word_embeddings` counts in either place. `clip_vision_model` and `siglip_vision_model` with
a classifier have `model_type` `clip` and `siglip` in `config.json`, and the keys above in
`vision_config`; both forms of names, with `vision_model.` and without, are read.

Convolutional networks that are not there, and why: EfficientNet and Inception (their many sizes and
gates are tables of their own for one row of a paper each), Swin (windows of attention that shift),
and YOLO, SSD, DeepLab, U-Net and Mask R-CNN, which give boxes or a map of classes: no head, loss or
data set here has those.
)";

std::string code(std::string_view text) {
  return fmt::format("`{}`", text);
}

std::string spellings(const HfKey& key) {
  std::string text = code(key.key);
  for (const std::string_view other : {key.newer, key.older}) {
    if (!other.empty()) text += " / " + code(other);
  }
  if (!key.gate.empty()) text += " (with " + code(key.gate) + ")";
  return text;
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The run file's key of a field, where it has one.
std::string field_key(std::string_view field) {
  const ModelField& known = model_field(field);
  if (known.origin != FieldOrigin::run) return code(known.path);
  if (field == "pad_token") return "the tokenizer's padding";
  if (field == "start_token") return "the tokenizer's padding, or its end of text";
  return field == "source_seq" ? "`model.source_seq`" : "the run's sequence length";
}

// Model names by key, keys in the order in which they first come.
struct KeyRow {
  std::string key, field;
  std::vector<std::string> models;
};

std::vector<KeyRow> used_keys() {
  std::vector<KeyRow> rows;
  for (const ModelDef* model : all_models()) {
    for (const HfKey& key : hf_keys_of(*model)) {
      const std::string text = spellings(key);
      auto at = std::ranges::find_if(
          rows, [&](const KeyRow& row) { return row.key == text && row.field == key.field; });
      if (at == rows.end()) at = rows.insert(rows.end(), {text, std::string(key.field), {}});
      at->models.push_back(code(model->name));
    }
  }
  return rows;
}

// By key and value, of those that single models have.
std::vector<KeyRow> neutral_keys() {
  std::vector<KeyRow> rows;
  for (const ModelDef* model : all_models()) {
    for (const HfNeutral& neutral : model->hf_neutrals) {
      const KeyRow row{code(neutral.key), code(neutral.value), {}};
      auto at = std::ranges::find_if(
          rows, [&](const KeyRow& one) { return one.key == row.key && one.field == row.field; });
      if (at == rows.end()) at = rows.insert(rows.end(), row);
      at->models.push_back(code(model->name));
    }
  }
  return rows;
}

std::string models_text(const std::vector<std::string>& names) {
  return names.size() == all_models().size() ? "all" : joined(names);
}

}  // namespace

std::string_view positions_text(const ModelDef& model) {
  if (model.is_convolutional) return "none";
  constexpr std::string_view kNames[] = {"rotary", "learned", "relative", "sinusoidal", "none"};
  return kNames[static_cast<size_t>(model.positions)];
}

std::string_view mlp_text(const ModelDef& model) {
  if (model.is_convolutional || model.is_recurrent) return "none";
  if (model.mlp == MlpKind::chosen)
    return model.positions == Positions::relative ? "ReLU or GEGLU" : "Swish, ReLU or GELU";
  const bool is_gated = model.mlp == MlpKind::gated;
  const HfKey* key = find_hf_key(model, "mlp_act");
  const bool is_said = key != nullptr && key->absent.has_value();
  const auto act = is_said    ? static_cast<MlpAct>(*key->absent)
                   : is_gated ? MlpAct::silu
                              : MlpAct::gelu_tanh;
  if (act == MlpAct::relu2) return "squared ReLU";
  if (!is_gated) return act == MlpAct::relu ? "ReLU" : "GELU";
  return act == MlpAct::silu ? "SwiGLU" : "GEGLU";
}

std::string models_markdown() {
  std::string page(kIntroduction);
  page +=
      "| `model_type` | class | positions | MLP | own keys |\n| --- | --- | --- | --- | --- |\n";
  for (const ModelDef* model : all_models()) {
    std::vector<std::string> own;
    for (const HfKey& key : model->own_hf_keys) own.push_back(code(key.key));
    page +=
        fmt::format("| {} | {} | {} | {} | {} |\n", code(model->name), code(model->architecture),
                    positions_text(*model), mlp_text(*model), joined(own));
  }
  page += kEncoders;
  for (const ModelDef* model : all_models()) {
    std::vector<std::string> classes;
    for (const std::string_view one : head_classes(*model)) classes.push_back(code(one));
    if (!classes.empty()) page += fmt::format("| {} | {} |\n", code(model->name), joined(classes));
  }
  page += kKeys;
  page += "Used:\n\n| key | field of a run file | models |\n| --- | --- | --- |\n";
  for (const KeyRow& row : used_keys()) {
    page +=
        fmt::format("| {} | {} | {} |\n", row.key, field_key(row.field), models_text(row.models));
  }
  page += "\nNeutral:\n\n| key | value | models |\n| --- | --- | --- |\n";
  for (const KeyRow& row : neutral_keys())
    page += fmt::format("| {} | {} | {} |\n", row.key, row.field, joined(row.models));
  for (const HfNeutral& neutral : kCommonNeutrals)
    page +=
        fmt::format("| {} | {} | that do not use it |\n", code(neutral.key), code(neutral.value));
  std::vector<std::string> harmless, elsewhere;
  for (const std::string_view key : kReadElsewhere) elsewhere.push_back(code(key));
  page += "\nRead with the head, the weights or the kind: " + joined(elsewhere) + ".\n";
  for (const std::string_view key : kHarmlessKeys) harmless.push_back(code(key));
  page += "\nHarmless: " + joined(harmless) + "; of all but `roberta`, `pad_token_id`.\n";
  page += kWeights;
  return page;
}

}  // namespace octet
