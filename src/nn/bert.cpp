// BERT, RoBERTa and DistilBERT: encoders of full attention with LayerNorm behind each sum, and
// heads for hidden tokens, classes, spans, numbers and embeddings. Source: Devlin et al. 2019; Liu
// et al. 2019; Sanh et al. 2019. Names: BertFor..., RobertaFor..., DistilBertFor... of
// transformers.
#include "nn/blocks.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "vocab", .key = "vocab_size"},
    {.field = "hidden", .key = "hidden_size"},
    {.field = "ffn", .key = "intermediate_size"},
    {.field = "layers", .key = "num_hidden_layers"},
    {.field = "heads", .key = "num_attention_heads"},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 512},
    {.field = "token_types", .key = "type_vocab_size", .absent = 2},
    {.field = "norm_eps", .key = "layer_norm_eps", .absent = 1e-12},
    {.field = "gelu", .key = "hidden_act", .absent = static_cast<int>(GeluKind::erf)},
};
constexpr HfKey kRobertaKeys[] = {
    {.field = "pad_token", .key = "pad_token_id", .absent = 1},
};
constexpr HfKey kDistilbertKeys[] = {
    {.field = "vocab", .key = "vocab_size"},
    {.field = "hidden", .key = "dim", .absent = 768},
    {.field = "ffn", .key = "hidden_dim", .absent = 3072},
    {.field = "layers", .key = "n_layers", .absent = 6},
    {.field = "heads", .key = "n_heads", .absent = 12},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 512},
    {.field = "gelu", .key = "activation", .absent = static_cast<int>(GeluKind::erf)},
};
// transformers' DistilBERT has this epsilon, whatever its file says.
constexpr HfNeutral kDistilbertNeutrals[] = {
    {.key = "sinusoidal_pos_embds", .value = "false"},
    {.key = "tie_word_embeddings", .value = "true"},
    {.key = "layer_norm_eps", .value = "1e-12"},
};
constexpr HfNeutral kNeutrals[] = {
    {.key = "is_decoder", .value = "false"},  // would mask causally
    {.key = "position_embedding_type", .value = "\"absolute\""},
    {.key = "tie_word_embeddings", .value = "true"},
};

// By the classes of transformers for hidden tokens, the bare model, rows, and spans.
constexpr std::array<HeadDef, 7> heads(std::string_view masked, std::string_view model,
                                       std::string_view rows, std::string_view spans) {
  return {{{ModelHead::masked, masked, "logits", Per::token, "masked_token"},
           {ModelHead::features, model, "features", Per::token, ""},
           {ModelHead::classes, rows, "classes", Per::row, "classes"},
           {ModelHead::span, spans, "spans", Per::token, "span"},
           {ModelHead::value, rows, "value", Per::row, "regression"},
           {ModelHead::embeddings, model, "embeddings", Per::row, "contrastive"},
           {ModelHead::multi_label, rows, "multi_label", Per::row, "multi_label"}}};
}

constexpr auto kBertHeads = heads("BertForMaskedLM", "BertModel", "BertForSequenceClassification",
                                  "BertForQuestionAnswering");
constexpr auto kRobertaHeads =
    heads("RobertaForMaskedLM", "RobertaModel", "RobertaForSequenceClassification",
          "RobertaForQuestionAnswering");
constexpr auto kDistilbertHeads =
    heads("DistilBertForMaskedLM", "DistilBertModel", "DistilBertForSequenceClassification",
          "DistilBertForQuestionAnswering");

constexpr HeadAlias kBertAliases[] = {
    {"BertForPreTraining", ModelHead::masked},
    {"BertLMHeadModel", ModelHead::masked},
    {"BertForNextSentencePrediction", ModelHead::features},
    {"BertForTokenClassification", ModelHead::features},
    {"BertForMultipleChoice", ModelHead::features},
};
constexpr HeadAlias kRobertaAliases[] = {
    {"RobertaForCausalLM", ModelHead::masked},
    {"RobertaForTokenClassification", ModelHead::features},
    {"RobertaForMultipleChoice", ModelHead::features},
};
constexpr HeadAlias kDistilbertAliases[] = {
    {"DistilBertForTokenClassification", ModelHead::features},
    {"DistilBertForMultipleChoice", ModelHead::features},
};

constexpr std::string_view kDistilbertHeadPrefixes[] = {"vocab_", "pre_classifier.", "classifier.",
                                                        "qa_outputs."};
constexpr std::string_view kHeadPrefixes[] = {"cls.", "classifier.", "qa_outputs.", "lm_head."};

constexpr LinearOptions kBias = {.bias = WithBias::yes};
constexpr LinearOptions kWhole = {.bias = WithBias::yes, .whole_path = true};

std::vector<HfFollower> distilbert_followers(const ModelSpec& spec) {
  return {follower_name("hidden_size", spec.hidden),
          follower_name("num_attention_heads", spec.heads),
          follower_name("num_hidden_layers", spec.layers)};
}

bool is_roberta(const ModelSpec& spec) {
  return spec.kind == ModelKind::roberta;
}
bool is_distilbert(const ModelSpec& spec) {
  return spec.kind == ModelKind::distilbert;
}

// The modules of a layer.
struct LayerNames {
  std::string_view layers, query, key, value, output, attention_norm, wide, narrow, norm;
};
constexpr LayerNames kNames = {.layers = "encoder.layer.",
                               .query = "attention.self.query",
                               .key = "attention.self.key",
                               .value = "attention.self.value",
                               .output = "attention.output.dense",
                               .attention_norm = "attention.output.LayerNorm",
                               .wide = "intermediate.dense",
                               .narrow = "output.dense",
                               .norm = "output.LayerNorm"};
constexpr LayerNames kDistilbertNames = {.layers = "transformer.layer.",
                                         .query = "attention.q_lin",
                                         .key = "attention.k_lin",
                                         .value = "attention.v_lin",
                                         .output = "attention.out_lin",
                                         .attention_norm = "sa_layer_norm",
                                         .wide = "ffn.lin1",
                                         .narrow = "ffn.lin2",
                                         .norm = "output_layer_norm"};
const LayerNames& names_of(const ModelSpec& spec) {
  return is_distilbert(spec) ? kDistilbertNames : kNames;
}

std::vector<InputSpec> inputs(const ModelSpec& spec, const BatchSize& size) {
  std::vector<InputSpec> list = text_inputs(spec, size);
  if (!is_distilbert(spec)) list.push_back(token_types_input(spec.token_types));
  list.push_back(key_ends_input());
  return list;
}

// Older files name the two of LayerNorm as TensorFlow does.
std::string renamed(const ModelSpec&, std::string_view stored) {
  constexpr std::string_view kGamma = "LayerNorm.gamma", kBeta = "LayerNorm.beta";
  for (const auto& [old, leaf] : {std::pair(kGamma, "weight"), std::pair(kBeta, "bias")}) {
    if (stored.ends_with(old))
      return std::string(stored.substr(0, stored.rfind('.') + 1)).append(leaf);
  }
  return std::string(stored);
}

// Beside the parameters: indices, the head's matrix beside the embedding that it is tied to, and
// heads of pretraining.
bool skips(const ModelSpec& spec, std::string_view stored) {
  const ModelHead head = head_of(spec).head;
  const bool has_pooler =
      spec.kind == ModelKind::bert && (has_classes(head) || head == ModelHead::value);
  if (stored.find("pooler.dense.") != std::string_view::npos) return !has_pooler;
  const bool is_masked = head_of(spec).head == ModelHead::masked;
  if (stored.starts_with("vocab_")) return !is_masked || stored == "vocab_projector.weight";
  if (stored.starts_with("cls.predictions.") || stored.starts_with("lm_head."))
    return !is_masked || stored.find(".decoder.") != std::string_view::npos;
  return stored.ends_with("embeddings.position_ids") ||
         stored.ends_with("embeddings.token_type_ids") ||
         stored.starts_with("cls.seq_relationship.");
}

ValueId layer(Blocks& b, ValueId x) {
  const ModelSpec& spec = b.spec();
  const LayerNames& names = names_of(spec);
  const int64_t width = spec.heads * spec.head_dim;
  const ValueId q = b.linear(x, names.query, width, kBias);
  const ValueId k = b.linear(x, names.key, width, kBias);
  const ValueId v = b.linear(x, names.value, width, kBias);
  const ValueId o = b.attention(q, k, v,
                                {.mask = AttentionMask::full,
                                 .key_begins = b.input_or_none("doc_starts"),
                                 .key_ends = b.input("key_ends")});
  const ValueId sum = b.add(x, b.linear(o, names.output, spec.hidden, kWhole));
  x = b.layer_norm(sum, names.attention_norm);
  const ValueId wide = b.gelu(b.linear(x, names.wide, spec.ffn, kWhole), "act");
  return b.layer_norm(b.add(x, b.linear(wide, names.narrow, spec.hidden, kWhole)), names.norm);
}

// Logits of hidden tokens: a dense layer, and the embedding as the last matrix, with a bias.
ValueId masked_logits(Blocks& b, ValueId x, const std::string& embedding) {
  if (is_distilbert(b.spec())) {
    b.enter(-1, "");
    const ValueId y = b.gelu(b.linear(x, "vocab_transform", b.spec().hidden, kWhole), "act");
    return b.bias(b.tied_head(b.layer_norm(y, "vocab_layer_norm"), embedding),
                  "vocab_projector.bias");
  }
  const bool is_bert = !is_roberta(b.spec());
  b.enter(-1, is_bert ? "cls.predictions." : "lm_head.");
  const std::string dense = is_bert ? "transform.dense" : "dense",
                    norm = is_bert ? "transform.LayerNorm" : "layer_norm";
  // RobertaLMHead has the exact one, whatever hidden_act says.
  const GeluKind kind = is_bert ? b.spec().gelu : GeluKind::erf;
  const ValueId y = b.gelu(b.linear(x, dense, b.spec().hidden, kWhole), "act", kind);
  return b.bias(b.tied_head(b.layer_norm(y, norm), embedding), "bias");
}

// n numbers of each row, by its first token.
ValueId classes(Blocks& b, ValueId x, int64_t n) {
  const ModelSpec& spec = b.spec();
  const ValueId first = b.row_of_each(x, 0);
  if (is_roberta(spec)) {
    b.enter(-1, "classifier.");
    const ValueId y = b.tanh(b.linear(first, "dense", spec.hidden, kBias), "act");
    return b.linear(y, "out_proj", n, kBias);
  }
  if (is_distilbert(spec)) {
    b.enter(-1, "");
    const ValueId y = b.relu(b.linear(first, "pre_classifier", spec.hidden, kBias), "act");
    return b.linear(y, "classifier", n, kBias);
  }
  b.enter(-1, "bert.pooler.");
  const ValueId pooled = b.tanh(b.linear(first, "dense", spec.hidden, kBias), "act");
  b.enter(-1, "");
  return b.linear(pooled, "classifier", n, kBias);
}

Outputs build(Blocks& b) {
  const ModelSpec& spec = b.spec();
  const std::string prefix(model_def(spec.kind).prefix);
  b.enter(-1, prefix + "embeddings.");
  ValueId x = b.token_embedding("word_embeddings");
  x = b.add(x, b.position_embedding("position_embeddings"));
  if (!is_distilbert(spec))
    x = b.add(x, b.embedding("token_type_embeddings", "token_types", spec.token_types));
  x = b.layer_norm(x, "LayerNorm");
  for (int i = 0; i < spec.layers; ++i) {
    b.enter(i, fmt::format("{}{}{}.", prefix, names_of(spec).layers, i));
    x = layer(b, x);
  }
  switch (head_of(spec).head) {
    case ModelHead::masked:
      return {masked_logits(b, x, prefix + "embeddings.word_embeddings.weight")};
    case ModelHead::classes:
    case ModelHead::multi_label:
      return {classes(b, x, spec.classes)};
    case ModelHead::value:
      return {classes(b, x, 1)};
    case ModelHead::embeddings:
      if (spec.pooling == Pooling::cls) return {b.row_of_each(x, 0)};
      return {b.mean_of_each(x, b.input("key_ends"))};
    case ModelHead::span:
      b.enter(-1, "");
      return {b.linear(x, "qa_outputs", 2, kBias)};
    case ModelHead::features:
    case ModelHead::text:
      break;
  }
  return {x};
}

}  // namespace

const ModelDef kBert = {.kind = ModelKind::bert,
                        .name = "bert",
                        .architecture = "BertForMaskedLM",
                        .prefix = "bert.",
                        .head = "cls.predictions.decoder.weight",
                        .positions = Positions::learned,
                        .mlp = MlpKind::gelu,
                        .grouped_heads = false,
                        .hf_keys = kKeys,
                        .own_hf_keys = {},
                        .hf_neutrals = kNeutrals,
                        .build = build,
                        .inputs = inputs,
                        .outputs = head_output,
                        .loss = head_loss,
                        .writes_text = false,
                        .heads = kBertHeads,
                        .head_aliases = kBertAliases,
                        .head_prefixes = kHeadPrefixes,
                        .skips = skips,
                        .renamed = renamed};

const ModelDef kRoberta = [] {
  ModelDef def = kBert;
  def.kind = ModelKind::roberta;
  def.name = "roberta";
  def.architecture = "RobertaForMaskedLM";
  def.prefix = "roberta.";
  def.head = "lm_head.decoder.weight";
  def.own_hf_keys = kRobertaKeys;
  def.heads = kRobertaHeads;
  def.head_aliases = kRobertaAliases;
  def.positions_follow_pad = true;
  return def;
}();

const ModelDef kDistilbert = [] {
  ModelDef def = kBert;
  def.kind = ModelKind::distilbert;
  def.name = "distilbert";
  def.architecture = "DistilBertForMaskedLM";
  def.prefix = "distilbert.";
  def.head = "vocab_projector.weight";
  def.heads = kDistilbertHeads;
  def.head_aliases = kDistilbertAliases;
  def.head_prefixes = kDistilbertHeadPrefixes;
  def.usual_norm_eps = 1e-12;
  def.hf_keys = kDistilbertKeys;
  def.hf_neutrals = kDistilbertNeutrals;
  def.hf_followers = distilbert_followers;
  return def;
}();

}  // namespace octet
