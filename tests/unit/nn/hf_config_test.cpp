#include "nn/hf_config.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "nn/fields.h"
#include "nn/hf_keys.h"
#include "nn/list.h"
#include "nn/model.h"
#include "unit/base/error_of.h"

namespace octet::nn_hf_config_test {
namespace {

using test::error_of;

constexpr std::string_view kLlamaCore =
    R"("model_type":"llama","hidden_size":64,"intermediate_size":172,"num_hidden_layers":5,)"
    R"("num_attention_heads":8,"vocab_size":512)";

ModelSpec llama(const std::string& more) {
  return parse_hf_config("{" + std::string(kLlamaCore) + more + "}", "c");
}

TEST(HfConfig, llama_defaults) {
  const ModelSpec spec = llama("");
  EXPECT_EQ(spec.kind, ModelKind::llama);
  EXPECT_EQ(spec.kv_heads, 8);
  EXPECT_EQ(spec.head_dim, 8);
  EXPECT_EQ(spec.max_positions, 2048);
  EXPECT_EQ(spec.norm_eps, 1e-6);
  EXPECT_EQ(spec.rope_theta, 10000.0);
  EXPECT_EQ(spec.rope_scaling, RopeScaling::none);
  EXPECT_FALSE(spec.tied);
}

TEST(HfConfig, rope_scaling_in_its_three_spellings) {
  const ModelSpec linear = llama(R"(,"rope_scaling":{"type":"linear","factor":2.0})");
  EXPECT_EQ(linear.rope_scaling, RopeScaling::linear);
  EXPECT_EQ(linear.rope_factor, 2.0);
  const std::string llama3 =
      R"("rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":4096)";
  const ModelSpec old = llama(",\"rope_theta\":500000.0,\"rope_scaling\":{" + llama3 + "}");
  const ModelSpec recent = llama(",\"rope_parameters\":{\"rope_theta\":500000.0," + llama3 + "}");
  for (const ModelSpec& spec : {old, recent}) {
    EXPECT_EQ(spec.rope_scaling, RopeScaling::llama3);
    EXPECT_EQ(spec.rope_factor, 8.0);
    EXPECT_EQ(spec.rope_original_max_position, 4096);
    EXPECT_EQ(spec.rope_theta, 500000.0);
  }
  EXPECT_EQ(llama(R"(,"rope_scaling":null)").rope_scaling, RopeScaling::none);
  EXPECT_EQ(llama(R"(,"rope_scaling":{"rope_type":"default"},"type":"linear")").rope_scaling,
            RopeScaling::none);
}

// A classifier as transformers takes it: by its problem_type, else a number if there is one class.
TEST(HfConfig, a_classifier_is_what_its_problem_type_says) {
  const auto head = [](const std::string& more, const std::string& kind = "bert",
                       const std::string& architecture = "BertForSequenceClassification") {
    return parse_hf_config(R"({"model_type":")" + kind + R"(","architectures":[")" + architecture +
                               R"("],"hidden_size":64,"intermediate_size":172,)" +
                               R"("num_hidden_layers":5,"num_attention_heads":8)" + more + "}",
                           "c")
        .head;
  };
  const std::string vocab = R"(,"vocab_size":512)";
  const std::string one = R"(,"id2label":{"0":"LABEL_0"})";
  const std::string multi = R"(,"problem_type":"multi_label_classification")";
  EXPECT_EQ(head(vocab), ModelHead::classes);
  EXPECT_EQ(head(vocab + one), ModelHead::value);
  EXPECT_EQ(head(vocab + one + R"(,"problem_type":"single_label_classification")"),
            ModelHead::classes);
  EXPECT_EQ(head(vocab + R"(,"problem_type":"regression")"), ModelHead::value);
  EXPECT_EQ(head(vocab + multi), ModelHead::multi_label);
  EXPECT_EQ(head(vocab + one + multi), ModelHead::multi_label);
  EXPECT_EQ(head(multi, "vit", "ViTForImageClassification"), ModelHead::multi_label);
  const auto of_vit = [&] {
    head(R"(,"problem_type":"regression")", "vit", "ViTForImageClassification");
  };
  EXPECT_EQ(error_of(of_vit),
            "[config.json] c: 'problem_type': expected one of single_label_classification, "
            "multi_label_classification, got \"regression\"");
  for (const ModelHead wanted : {ModelHead::value, ModelHead::classes, ModelHead::multi_label}) {
    const ModelSpec spec = resolved({.kind = ModelKind::bert,
                                     .hidden = 8,
                                     .layers = 1,
                                     .heads = 1,
                                     .ffn = 8,
                                     .vocab = 8,
                                     .head = wanted,
                                     .classes = wanted == ModelHead::value ? 2 : 1});
    EXPECT_EQ(parse_hf_config(hf_config_text(spec), "c"), spec);
  }
}

// As in transformers, what stands at the top goes before; other kinds of scaling have no use for
// it.
TEST(HfConfig, original_positions_are_read_at_the_top_too) {
  const std::string top = R"(,"original_max_position_embeddings":32,"rope_scaling":)";
  for (const char* type : {"yarn", "llama3"}) {
    const std::string scaling = fmt::format(R"("rope_type":"{}","factor":4.0)", type);
    EXPECT_EQ(llama(top + "{" + scaling + "}").rope_original_max_position, 32);
    const std::string other = scaling + R"(,"original_max_position_embeddings":64)";
    EXPECT_EQ(llama(top + "{" + other + "}").rope_original_max_position, 32);
    EXPECT_EQ(llama(R"(,"rope_scaling":{)" + other + "}").rope_original_max_position, 64);
  }
  const HfConfig none =
      parse_hf_config_and_keys("{" + std::string(kLlamaCore) + top + "null}", "c");
  EXPECT_EQ(none.spec, llama(""));
  EXPECT_EQ(none.unknown, std::vector<std::string>{});
}

TEST(HfConfig, explicit_llama_keys) {
  const ModelSpec spec =
      llama(R"(,"num_key_value_heads":2,"head_dim":16,"tie_word_embeddings":true,)"
            R"("attention_bias":false,"rms_norm_eps":1e-05,"bos_token_id":1,"hidden_act":"swish",)"
            R"("eos_token_id":[128001,128009],"torch_dtype":"bfloat16","use_cache":true)");
  EXPECT_EQ(spec.kv_heads, 2);
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_TRUE(spec.tied);
  EXPECT_EQ(spec.norm_eps, 1e-5);
}

TEST(HfConfig, keys_are_used_neutral_harmless_or_unknown) {
  const auto unknown = [](const std::string& more) {
    return parse_hf_config_and_keys("{" + std::string(kLlamaCore) + more + "}", "c").unknown;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(unknown(R"(,"rms_norm_eps":1e-5,"pruned_heads":{},"partial_rotary_factor":1,)"
                    R"("torch_dtype":"bfloat16","attention_dropout":0.1,"auto_map":{},)"
                    R"("layer_types":["full_attention","full_attention","full_attention",)"
                    R"("full_attention","full_attention"],"no_rope_layers":[1,1,1,1,1])"),
            Names{});
  EXPECT_EQ(unknown(R"(,"encoder_stride":16,"pooler_act":"tanh","pooler_output_size":36)"),
            Names{});
  EXPECT_EQ(unknown(R"(,"zebra":1,"apple":null,"rope_scaling":{"type":"linear","factor":2,)"
                    R"("pear":3})"),
            (Names{"apple", "zebra", "rope_scaling.pear"}));
}

// A key of the lists that no list of another kind has: which one wins would be chance.
TEST(HfConfig, no_key_is_both_used_and_harmless) {
  for (const ModelDef* model : models()) {
    for (const HfKey& key : hf_keys_of(*model)) {
      for (const std::string_view spelling : {key.key, key.newer, key.older, key.gate}) {
        EXPECT_EQ(std::ranges::count(kHarmlessKeys, spelling), 0) << spelling;
      }
    }
  }
}

TEST(HfConfig, layers_without_rotary_positions_of_either_spelling) {
  const auto every = [](const std::string& more) {
    return parse_hf_config(R"({"model_type":"smollm3","hidden_size":64,"intermediate_size":172,)"
                           R"("num_hidden_layers":5,"num_attention_heads":8,"vocab_size":512)" +
                               more + "}",
                           "c")
        .no_rope_every;
  };
  EXPECT_EQ(every(""), 4);
  EXPECT_EQ(every(R"(,"no_rope_layer_interval":2)"), 2);
  EXPECT_EQ(every(R"(,"no_rope_layers":[1,0,1,0,1])"), 2);
  EXPECT_EQ(every(R"(,"no_rope_layers":[1,1,1,1,1])"), 0);
  EXPECT_EQ(every(R"(,"no_rope_layers":[0,0,0,0,0])"), 1);
  EXPECT_EQ(error_of([&] { every(R"(,"no_rope_layers":[1,0,1,1,1])"); }),
            "[config.json] c: 'no_rope_layers': expected a 0 for each n-th layer and 1 for the "
            "others, got 1 for layer 3");
}

TEST(HfConfig, olmo_has_a_fixed_eps) {
  const ModelSpec spec = parse_hf_config(
      R"({"model_type":"olmo","hidden_size":64,"intermediate_size":100,"num_hidden_layers":2,)"
      R"("num_attention_heads":4,"vocab_size":50304,"clip_qkv":null,"rms_norm_eps":1e-3})",
      "c");
  EXPECT_EQ(spec.kind, ModelKind::olmo);
  EXPECT_EQ(spec.norm_eps, 1e-5);
}

TEST(HfConfig, gpt2_keys_and_defaults) {
  const std::string core =
      R"({"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"n_inner":null,)"
      R"("n_ctx":512,"vocab_size":50257,"layer_norm_epsilon":1e-05)";
  const ModelSpec spec = parse_hf_config(core + "}", "c");
  EXPECT_EQ(spec.kind, ModelKind::gpt2);
  EXPECT_EQ(spec.hidden, 768);
  EXPECT_EQ(spec.ffn, 3072);
  EXPECT_EQ(spec.max_positions, 512);
  EXPECT_EQ(spec.gelu, GeluKind::tanh);
  EXPECT_TRUE(spec.tied);
  const ModelSpec erf =
      parse_hf_config(core + R"(,"n_positions":1024,"activation_function":"gelu"})", "c");
  EXPECT_EQ(erf.max_positions, 1024);
  EXPECT_EQ(erf.gelu, GeluKind::erf);
}

TEST(HfConfig, what_is_wrong_or_not_supported_is_named) {
  const std::string gpt2 =
      R"({"model_type":"gpt2","n_embd":8,"n_layer":1,"n_head":1,"vocab_size":9)";
  const std::string opt =
      R"({"model_type":"opt","hidden_size":8,"ffn_dim":8,"num_hidden_layers":1,)"
      R"("num_attention_heads":1,"vocab_size":9)";
  const std::string gemma4 = R"({"model_type":"gemma4_text","hidden_size":8,"intermediate_size":8,)"
                             R"("num_hidden_layers":6,"num_attention_heads":8,"vocab_size":9)";
  const auto with = [](const std::string& more) {
    return "{" + std::string(kLlamaCore) + more + "}";
  };
  std::string known;
  for (const ModelDef* model : all_models()) {
    known += (known.empty() ? "" : ", ") + std::string(model->name);
  }
  const struct {
    std::string text, error;
  } cases[] = {
      {"", "[json] c: expected JSON, got a mistake at byte 1"},
      {"{}", "[json] c: expected key 'model_type', got none"},
      {R"({"model_type":"mamba\n"})", "[config.json] c: 'model_type': expected one of " + known +
                                          R"( (docs/models.md), got "mamba\n")"},
      {R"({"model_type":"qwen3_moe"})", "[config.json] c: 'model_type': expected one of " + known +
                                            " (docs/models.md); the nearest is qwen3, got "
                                            "\"qwen3_moe\""},
      {R"({"model_type":"gemma3"})", "[config.json] c: 'model_type': expected one of " + known +
                                         " (docs/models.md); the nearest is gemma3_text, got "
                                         "\"gemma3\""},
      {R"({"model_type":"llama"})", "[json] c: expected key 'vocab_size', got none"},
      {R"({"model_type":"llama","vocab_size":null})",
       "[json] c: 'vocab_size' must be an integer, got null"},
      {R"({"model_type":"llama","vocab_size":"many"})",
       "[json] c: 'vocab_size' must be an integer, got \"many\""},
      {R"({"model_type":"llama","vocab_size":0})",
       "[config.json] c: 'vocab_size': expected an integer in [2, 16777216], got 0"},
      {R"({"model_type":"llama","vocab_size":18446744073709551615})",
       "[json] c: 'vocab_size' must be below 2^63, got 18446744073709551615"},
      {with(R"(,"num_key_value_heads":0)"),
       "[config.json] c: 'num_key_value_heads': expected an integer in [1, 4096], got 0"},
      {with(R"(,"num_key_value_heads":3)"),
       "[config.json] c: 'num_key_value_heads': expected a divisor of num_attention_heads = 8, got "
       "3"},
      {with(R"(,"rms_norm_eps":0)"),
       "[config.json] c: 'rms_norm_eps': expected a number in [1e-30, 1], got 0"},
      {with(R"(,"hidden_act":"tanh")"),
       "[config.json] c: 'hidden_act': expected one of silu, swish, gelu_pytorch_tanh, gelu_new, "
       "gelu_fast, gelu, gelu_python, relu, relu2, quick_gelu, got \"tanh\""},
      {with(R"(,"auto_map":{"AutoModel":"modeling.Evil"})"),
       R"([config.json] c: 'auto_map': expected none, as code of a model folder is never run, )"
       R"(got {"AutoModel":"modeling.Evil"})"},
      {with(R"(,"mlp_bias":[])"), "[json] c: 'mlp_bias' must be true or false, got array"},
      {with(R"(,"sliding_window":4096)"),
       "[config.json] c: 'sliding_window': expected null for model_type llama, got 4096"},
      {with(R"(,"pruned_heads":{"1":[0]})"),
       "[config.json] c: 'pruned_heads': expected {} for model_type llama, got object"},
      {with(R"(,"layer_types":["full_attention"])"),
       "[config.json] c: 'layer_types': expected a list of 5 layers, got 1"},
      {with(R"(,"layer_types":["full_attention","sliding_attention",1,2,3])"),
       "[config.json] c: 'layer_types': expected full_attention of all layers, got "
       "\"sliding_attention\" for layer 1"},
      {with(R"(,"no_rope_layers":[1,1,1,0,1])"),
       "[config.json] c: 'no_rope_layers': expected a 0 for each n-th layer and 1 for the others, "
       "got 1 for layer 0"},
      {with(R"(,"rope_parameters":{"full_attention":{"rope_theta":1e4}})"),
       "[config.json] c: 'rope_parameters.full_attention': expected one set of values for all "
       "layers, got object"},
      {with(R"(,"clip_qkv":8.0)"),
       "[config.json] c: 'clip_qkv': expected null for model_type llama, got 8.0"},
      {with(R"(,"rope_scaling":{"type":"ntk","factor":4.0})"),
       "[config.json] c: 'type': expected one of default, linear, llama3, dynamic, yarn, longrope, "
       "su, got \"ntk\""},
      {with(R"(,"rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":"a"})"),
       "[config.json] c: 'long_factor': expected a list of numbers, got \"a\""},
      {with(R"(,"rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":[1]})"),
       "[config.json] c: 'short_factor': expected 4 numbers, one for each rotated pair of a head, "
       "got 1"},
      {with(R"(,"rope_scaling":[])"), "[json] c: 'rope_scaling' must be an object, got array"},
      {with(R"(,"rope_scaling":{"type":"linear"})"), "[json] c: expected key 'factor', got none"},
      {with(R"(,"rope_scaling":{"type":"llama3","factor":8,"high_freq_factor":1.0})"),
       "[config.json] c: 'high_freq_factor': expected more than low_freq_factor = 1, got 1"},
      {with(R"(,"head_dim":3)"),
       "[config.json] c: 'head_dim': expected an even width of a head for rotary positions, got 3"},
      {with(R"(,"tie_word_embeddings":1)"),
       "[json] c: 'tie_word_embeddings' must be true or false, got 1"},
      {with(R"(,"vocab_size":7)"), "[json] c: expected each key once, got 'vocab_size' again"},
      {gpt2 + R"(,"scale_attn_weights":false})",
       "[config.json] c: 'scale_attn_weights': expected true for model_type gpt2, got false"},
      {gpt2 + R"(,"scale_attn_by_inverse_layer_idx":true})",
       "[config.json] c: 'scale_attn_by_inverse_layer_idx': expected false for model_type gpt2, "
       "got true"},
      {gpt2 + R"(,"activation_function":"silu"})",
       "[config.json] c: 'activation_function': expected one of gelu_new, gelu_pytorch_tanh, gelu, "
       "gelu_fast, "
       "got \"silu\""},
      {opt + R"(,"layer_norm_elementwise_affine":false})",
       "[config.json] c: 'layer_norm_elementwise_affine': expected true for model_type opt, got "
       "false"},
      {opt + R"(,"_remove_final_layer_norm":true})",
       "[config.json] c: '_remove_final_layer_norm': expected false for model_type opt, got true"},
      {gemma4 + R"(,"enable_moe_block":true})",
       "[config.json] c: 'enable_moe_block': expected false for model_type gemma4_text, got true"},
      {gemma4 + R"(,"vocab_size_per_layer_input":7})",
       "[config.json] c: 'vocab_size_per_layer_input': expected 9 for model_type gemma4_text, got "
       "7"},
      {gemma4 + R"(,"num_global_key_value_heads":1})",
       "[config.json] c: 'num_global_key_value_heads': expected num_key_value_heads = 4 without "
       "keys_are_values, got 1"},
      {gemma4 + R"(,"num_kv_shared_layers":5})",
       "[config.json] c: 'num_kv_shared_layers': expected layers of either sort before the shared "
       "ones of layer_types = [1, 1, 1, 1, 1, 0], got 5"},
      {gemma4 + R"(,"rope_parameters":{"full_attention":{"rope_type":"default"}}})",
       "[config.json] c: 'rope_type': expected \"proportional\" for model_type gemma4_text, got "
       "\"default\""},
      {gemma4 + R"(,"layer_types":["full_attention"],"per_layer_config":{"1":{"head_dim":8}}})",
       "[config.json] c: 'per_layer_config': expected head_dim and num_key_value_heads of all "
       "full_attention layers, the same for each, got {\"1\":{\"head_dim\":8}}"},
      {R"({"model_type":"gpt2","n_embd":8,"n_layer":1,"n_head":3,"vocab_size":9})",
       "[config.json] c: 'n_head': expected a divisor of n_embd = 8, got 3"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_EQ(error_of([&, &text = text] { parse_hf_config(text, "c"); }), error);
  }
}

// Another value of every field that a model has, one at a time: what one program writes, the other
// reads.
TEST(HfConfig, every_field_of_every_model_is_written_and_read_back) {
  for (const ModelDef* model : models()) {
    ModelSpec shape{.kind = model->kind, .hidden = 32, .heads = 4};
    shape.norm_eps = model->usual_norm_eps;
    if (find_hf_key(*model, "sliding_window") != nullptr) shape.sliding_window = 8;
    if (find_hf_key(*model, "rope_scaling.type") != nullptr) {
      shape.rope_scaling = RopeScaling::llama3;
      shape.rope_factor = 2;
    }
    const ModelSpec base = resolved(shape);
    const Json before = parse_json(hf_config_text(base), "a");
    int n_keys = 0;
    for (const ModelField& field : model_fields()) {
      ModelSpec other = field.origin == FieldOrigin::derived ? base : shape;
      const auto change = [&](auto member) {
        if constexpr (std::is_same_v<decltype(member), int64_t ModelSpec::*>) {
          other.*member *= 2;
        } else if constexpr (std::is_same_v<decltype(member), double ModelSpec::*>) {
          other.*member *= 1.5;
        } else if constexpr (std::is_same_v<decltype(member), bool ModelSpec::*>) {
          other.*member = !(other.*member);
        } else if constexpr (std::is_same_v<decltype(member), ModelList>) {
          for (int64_t& one : other.*member) one = one > 1 ? 2 * one : 1 - one;
        } else if constexpr (std::is_same_v<decltype(member), ModelNumbers>) {
          for (double& one : other.*member) one *= 1.5;
        } else if (field.name() != "kind") {
          const int value = member->get(other);
          member->set(other, value == 0 ? 1 : value - 1);
        }
      };
      std::visit(change, field.member);
      if (error_of([&] { resolved(other); }) != "no error") continue;  // not by itself
      other = resolved(other);
      if (parse_json(hf_config_text(other), "a") == before)
        continue;  // the model has no such field
      ++n_keys;
      EXPECT_EQ(parse_hf_config(hf_config_text(other), "a"), other) << field.path;
    }
    EXPECT_GE(n_keys, 8) << model->name;
    EXPECT_EQ(parse_hf_config(hf_config_text(base), "a"), base);
  }
}

TEST(HfConfig, every_key_of_a_model_names_a_field) {
  for (const ModelDef* model : models()) {
    for (const auto keys : {model->hf_keys, model->own_hf_keys}) {
      for (const HfKey& key : keys) EXPECT_EQ(model_field(key.field).name(), key.field);
    }
    for (const HfNeutral& neutral : model->hf_neutrals)
      EXPECT_NO_THROW(parse_json(neutral.value, "a")) << neutral.key;
  }
}

TEST(HfConfig, the_shared_llama_is_read) {
  const std::string path = std::string(OCTET_TEST_DATA) + "/data/weights/stories260K";
  if (!posix_files().exists(path)) GTEST_SKIP() << "shared test data absent: " << path;
  const ModelSpec spec = read_hf_config(posix_files(), path);
  EXPECT_EQ(spec.hidden, 64);
  EXPECT_EQ(spec.kv_heads, 4);
  EXPECT_TRUE(spec.tied);
}

}  // namespace
}  // namespace octet::nn_hf_config_test
