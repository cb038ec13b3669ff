#include "io/hf_config.h"

#include <gtest/gtest.h>

#include "unit/base/error_of.h"

namespace octet {
namespace {

using test::error_of;

constexpr std::string_view kLlamaCore =
    R"("model_type":"llama","hidden_size":64,"intermediate_size":172,"num_hidden_layers":5,)"
    R"("num_attention_heads":8,"vocab_size":512)";

HfConfig llama(const std::string& more) {
  return parse_hf_config("{" + std::string(kLlamaCore) + more + "}", "c");
}

TEST(HfConfig, llama_defaults) {
  const HfConfig config = llama("");
  EXPECT_EQ(config.model_type, ModelType::llama);
  EXPECT_EQ(config.num_key_value_heads, 8);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.rope_scaling.kind, RopeKind::plain);
  EXPECT_FALSE(config.tie_word_embeddings || config.attention_bias || config.mlp_bias);
  EXPECT_FALSE(config.bos_token_id);
}

TEST(HfConfig, rope_scaling_in_its_three_spellings) {
  const HfConfig linear = llama(R"(,"rope_scaling":{"type":"linear","factor":2.0})");
  EXPECT_EQ(linear.rope_scaling.kind, RopeKind::linear);
  EXPECT_EQ(linear.rope_scaling.factor, 2.0);
  const std::string llama3 =
      R"("rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":4096)";
  const HfConfig old = llama(",\"rope_theta\":500000.0,\"rope_scaling\":{" + llama3 + "}");
  const HfConfig recent = llama(",\"rope_parameters\":{\"rope_theta\":500000.0," + llama3 + "}");
  for (const HfConfig& config : {old, recent}) {
    EXPECT_EQ(config.rope_scaling.kind, RopeKind::llama3);
    EXPECT_EQ(config.rope_scaling.factor, 8.0);
    EXPECT_EQ(config.rope_scaling.original_max_positions, 4096);
    EXPECT_EQ(config.rope_theta, 500000.0);
  }
  EXPECT_EQ(llama(R"(,"rope_scaling":null)").rope_scaling.kind, RopeKind::plain);
}

TEST(HfConfig, explicit_llama_keys) {
  const HfConfig config =
      llama(R"(,"num_key_value_heads":2,"head_dim":16,"tie_word_embeddings":true,)"
            R"("attention_bias":true,"rms_norm_eps":1e-05,"bos_token_id":1,)"
            R"("eos_token_id":[128001,128009],"torch_dtype":"bfloat16","use_cache":true)");
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_TRUE(config.tie_word_embeddings && config.attention_bias);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.eos_token_id, 128001);
  EXPECT_EQ(config.torch_dtype, "bfloat16");
}

TEST(HfConfig, olmo_has_a_fixed_eps_and_clipping) {
  const HfConfig config = parse_hf_config(
      R"({"model_type":"olmo","hidden_size":64,"intermediate_size":100,"num_hidden_layers":2,)"
      R"("num_attention_heads":4,"vocab_size":50304,"clip_qkv":8.0,"rms_norm_eps":1e-3})",
      "c");
  EXPECT_EQ(config.model_type, ModelType::olmo);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.clip_qkv, 8.0);
}

TEST(HfConfig, gpt2_keys_and_defaults) {
  const HfConfig config = parse_hf_config(
      R"({"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"n_inner":null,)"
      R"("n_positions":1024,"n_ctx":1024,"vocab_size":50257,"layer_norm_epsilon":1e-05})",
      "c");
  EXPECT_EQ(config.model_type, ModelType::gpt2);
  EXPECT_EQ(config.hidden_size, 768);
  EXPECT_EQ(config.intermediate_size, 3072);
  EXPECT_EQ(config.max_position_embeddings, 1024);
  EXPECT_EQ(config.activation, HfActivation::gelu_tanh);
  EXPECT_TRUE(config.tie_word_embeddings && config.attention_bias && config.mlp_bias);
}

TEST(HfConfig, what_is_wrong_or_not_supported_is_named) {
  const std::string gpt2 =
      R"({"model_type":"gpt2","n_embd":8,"n_layer":1,"n_head":1,"vocab_size":9)";
  const auto with = [](const std::string& more) {
    return "{" + std::string(kLlamaCore) + more + "}";
  };
  const struct {
    std::string text, error;
  } cases[] = {
      {"", "[json] c: expected JSON, got a mistake at byte 1"},
      {"{}", "[json] c: expected key 'model_type', got none"},
      {R"({"model_type":"mamba"})",
       "[config.json] c: 'model_type' must be llama, olmo or gpt2, got 'mamba'"},
      {R"({"model_type":"llama"})", "[json] c: expected key 'vocab_size', got none"},
      {R"({"model_type":"llama","vocab_size":"many"})",
       "[json] c: 'vocab_size' must be an integer, got \"many\""},
      {R"({"model_type":"llama","vocab_size":0})",
       "[config.json] c: 'vocab_size' must be from 1 to 2147483647, got 0"},
      {R"({"model_type":"llama","vocab_size":18446744073709551615})",
       "[json] c: 'vocab_size' must be below 2^63, got 18446744073709551615"},
      {with(R"(,"num_key_value_heads":3)"),
       "[config.json] c: 'num_key_value_heads' must divide 8, got 3"},
      {with(R"(,"rms_norm_eps":0)"), "[config.json] c: 'rms_norm_eps' must be above 0, got 0"},
      {with(R"(,"hidden_act":"relu")"),
       "[config.json] c: 'hidden_act' must be silu, gelu, gelu_new or gelu_pytorch_tanh, got "
       "'relu'"},
      {with(R"(,"rope_scaling":{"type":"yarn","factor":4.0})"),
       "[config.json] c: rope_scaling must be default, linear or llama3, got 'yarn'"},
      {with(R"(,"rope_scaling":{"type":"linear"})"),
       "[config.json] c: 'factor' must be above 0, got 0"},
      {with(R"(,"rope_scaling":{"type":"llama3","factor":8,"high_freq_factor":1.0})"),
       "[config.json] c: 'high_freq_factor' must be above 1, got 1"},
      {with(R"(,"tie_word_embeddings":1)"),
       "[json] c: 'tie_word_embeddings' must be true or false, got 1"},
      {with(R"(,"vocab_size":7)"), "[json] c: expected each key once, got 'vocab_size' again"},
      {gpt2 + R"(,"scale_attn_weights":false})",
       "[config.json] c: 'scale_attn_weights: false' is not supported"},
      {gpt2 + R"(,"scale_attn_by_inverse_layer_idx":true})",
       "[config.json] c: 'scale_attn_by_inverse_layer_idx: true' is not supported"},
      {R"({"model_type":"gpt2","n_embd":8,"n_layer":1,"n_head":3,"vocab_size":9})",
       "[config.json] c: the number of heads must divide 8, got 3"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_EQ(error_of([&, &text = text] { parse_hf_config(text, "c"); }), error);
  }
}

TEST(HfConfig, the_shared_llama_is_read) {
  const std::string path = std::string(OCTET_TEST_DATA) + "/data/weights/stories260K";
  if (!posix_files().exists(path)) GTEST_SKIP() << "shared test data absent: " << path;
  const HfConfig config = read_hf_config(posix_files(), path);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_id, 2);
}

}  // namespace
}  // namespace octet
