// Values of config.json that transformers computes otherwise than the file's other keys say, or
// than another spelling does: each is refused by its key, or means what it means there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/hf_config.h"
#include "unit/base/error_of.h"

namespace octet::nn_told_keys_test {
namespace {

using test::error_of;
using testing::ElementsAre;

constexpr std::string_view kDecoder =
    R"("hidden_size":64,"intermediate_size":172,"num_hidden_layers":3,"num_attention_heads":8,)"
    R"("num_key_value_heads":8,"vocab_size":512)";
constexpr std::string_view kGpt2 =
    R"("n_embd":64,"n_layer":3,"n_head":8,"n_positions":32,"vocab_size":512)";
constexpr std::string_view kT5 =
    R"("d_model":64,"d_kv":8,"d_ff":100,"num_layers":2,"num_heads":8,"vocab_size":64)";
constexpr std::string_view kMarian =
    R"("d_model":64,"encoder_ffn_dim":100,"decoder_ffn_dim":100,"encoder_layers":2,)"
    R"("decoder_layers":2,"encoder_attention_heads":8,"vocab_size":64,"decoder_start_token_id":1)";
constexpr std::string_view kDistilbert =
    R"("dim":64,"hidden_dim":100,"n_layers":2,"n_heads":8,"vocab_size":64)";

HfConfig read(std::string_view type, std::string_view core, const std::string& more) {
  return parse_hf_config_and_keys(fmt::format(R"({{"model_type":"{}",{},{}}})", type, core, more),
                                  "c");
}

struct ToldCase {
  std::string_view type, core;
  std::string more, error;
};

TEST(ToldKeys, are_refused_by_their_names) {
  const std::string longrope =
      R"("rope_scaling":{"type":"longrope","short_factor":[1,1,1,1],"long_factor":[2,2,2,2])";
  const std::string nested = R"("rope_parameters":{"full_attention":{"rope_theta":100,)"
                             R"("rope_type":"linear","factor":4},"sliding_attention":{}})";
  const std::string yarn = R"("rope_scaling":{"rope_type":"yarn","factor":2)";
  const ToldCase cases[] = {
      // 0 is no "none" where null is
      {"olmo", kDecoder, R"("clip_qkv":0)",
       "'clip_qkv': expected null, or a number above 0, got 0"},
      {"gemma2", kDecoder, R"("attn_logit_softcapping":0.0)",
       "'attn_logit_softcapping': expected null, or a number above 0, got 0"},
      {"gemma3_text", kDecoder, R"("final_logit_softcapping":0.0)",
       "'final_logit_softcapping': expected null, or a number above 0, got 0"},
      {"mistral", kDecoder, R"("sliding_window":0)",
       "'sliding_window': expected null, or a number above 0, got 0"},
      {"granite", kDecoder, R"("attention_multiplier":0)",
       "'attention_multiplier': expected a number above 0, got 0"},
      {"llama", kDecoder, yarn + R"(,"attention_factor":0})",
       "'attention_factor': expected a number above 0, got 0"},
      // two spellings, of which one would count
      {"phi3", kDecoder,
       R"("original_max_position_embeddings":16,)" + longrope +
           R"(,"original_max_position_embeddings":8})",
       "'original_max_position_embeddings': expected 8 as in rope_parameters, got 16"},
      {"phi3", kDecoder, longrope + R"(,"original_max_position_embeddings":8})",
       "'original_max_position_embeddings': expected it beside rope_parameters, too, got none"},
      {"gemma3_text", kDecoder,
       R"("original_max_position_embeddings":16,)" + yarn +
           R"(,"original_max_position_embeddings":8})",
       "'original_max_position_embeddings': expected 8 as in rope_parameters, got 16"},
      {"olmo3", kDecoder,
       R"("original_max_position_embeddings":16,"max_position_embeddings":64,)" + yarn + "}",
       "'original_max_position_embeddings': expected 64 without it in rope_parameters, got 16"},
      {"gemma4_text", kDecoder,
       R"("rope_parameters":{"full_attention":{"rope_type":"proportional","rope_theta":100}})",
       "'partial_rotary_factor': expected 0.25 for model_type gemma4_text, got 1.0"},
      {"gemma4_text", kDecoder,
       R"("rope_parameters":{"full_attention":{"partial_rotary_factor":1,"rope_theta":100}})",
       "'rope_type': expected \"proportional\" for model_type gemma4_text, got \"default\""},
      {"gemma3_text", kDecoder, R"("rope_parameters":{"rope_type":"linear","factor":8})",
       "'rope_parameters': expected an object for full_attention and one for sliding_attention, "
       "got values for all layers"},
      {"gemma3_text", kDecoder, nested + R"(,"rope_scaling":{"rope_type":"linear","factor":8})",
       "'rope_scaling.factor': expected what rope_parameters.full_attention says (4), got 8"},
      {"olmo3", kDecoder, nested + R"(,"rope_scaling":{"type":"yarn","factor":4})",
       "'rope_scaling.type': expected what rope_parameters.full_attention says (\"linear\"), got "
       "\"yarn\""},
      {"gpt_neox", kDecoder, R"("rotary_pct":0.5,"partial_rotary_factor":0.25)",
       "'partial_rotary_factor': expected 0.5 for model_type gpt_neox, got 0.25"},
      {"gpt_neox", kDecoder, R"("rope_theta":500)",
       "'rope_theta': expected 10000 for model_type gpt_neox, got 500"},
      {"gpt2", kGpt2, R"("num_attention_heads":4)",
       "'num_attention_heads': expected 8 for model_type gpt2, got 4"},
      {"t5", kT5, R"("num_hidden_layers":3)",
       "'num_hidden_layers': expected 2 for model_type t5, got 3"},
      {"distilbert", kDistilbert, R"("hidden_size":32)",
       "'hidden_size': expected 64 for model_type distilbert, got 32"},
      // what a file without the key says; what null says
      {"marian", kMarian, R"("static_position_embeddings":true)",
       "'decoder_attention_heads': expected 8 for model_type marian, got 16"},
      {"t5", kT5, R"("feed_forward_proj":"gated-gelu","is_gated_act":null)",
       "'is_gated_act': expected true for model_type t5, got null"},
      {"gemma2", kDecoder, R"("sliding_window_pattern":3)",
       "'sliding_window_pattern': expected 2 without layer_types for model_type gemma2, got 3"},
      {"olmo3", kDecoder, R"("sliding_window_pattern":2)",
       "'sliding_window_pattern': expected 4 without layer_types for model_type olmo3, got 2"},
  };
  for (const ToldCase& one : cases) {
    SCOPED_TRACE(fmt::format("{} {}", one.type, one.more));
    EXPECT_EQ(error_of([&] { read(one.type, one.core, one.more); }),
              "[config.json] c: " + one.error);
  }
}

TEST(ToldKeys, of_two_spellings_that_agree_are_read) {
  const std::string nested = R"("rope_parameters":{"full_attention":{"rope_theta":100,)"
                             R"("rope_type":"linear","factor":4},"sliding_attention":)"
                             R"({"rope_theta":7}},"rope_scaling":{"type":"linear","factor":4})";
  const ModelSpec gemma = read("gemma3_text", kDecoder, nested).spec;
  EXPECT_EQ(gemma.rope_factor, 4);
  EXPECT_EQ(gemma.rope_theta, 100);
  EXPECT_EQ(gemma.window_rope_theta, 7);
  const std::string neox = R"("rotary_pct":0.5,"rotary_emb_base":500,"partial_rotary_factor":0.5,)"
                           R"("rope_theta":500.0)";
  EXPECT_EQ(read("gpt_neox", kDecoder, neox).spec.rope_share, 0.5);
  EXPECT_EQ(read("gpt2", kGpt2, R"("num_attention_heads":8,"hidden_size":64)").unknown,
            std::vector<std::string>{});
}

// transformers reads it of Gemma 3 alone.
TEST(ToldKeys, a_base_of_windows_beside_rope_parameters_is_not_known_of_others) {
  const HfConfig olmo = read("olmo3", kDecoder, R"("rope_local_base_freq":55)");
  EXPECT_THAT(olmo.unknown, ElementsAre("rope_local_base_freq"));
  EXPECT_EQ(olmo.spec.window_rope_theta, 500000);
  const HfConfig gemma4 = read("gemma4_text", kDecoder, R"("rope_local_base_freq":55)");
  EXPECT_THAT(gemma4.unknown, ElementsAre("rope_local_base_freq"));
  EXPECT_EQ(gemma4.spec.window_rope_theta, 10000);
  EXPECT_EQ(read("gemma3_text", kDecoder, R"("rope_local_base_freq":55)").spec.window_rope_theta,
            55);
  const std::string nested = R"("rope_parameters":{"full_attention":{"rope_theta":100},)"
                             R"("sliding_attention":{"rope_theta":7}})";
  const ModelSpec spec = read("olmo3", kDecoder, nested).spec;
  EXPECT_EQ(spec.window_rope_theta, 7);
  EXPECT_EQ(parse_hf_config(hf_config_text(spec), "c"), spec);
}

// As Python's truth has it.
TEST(ToldKeys, that_are_null_where_a_truth_is_expected_are_false) {
  EXPECT_FALSE(read("t5", kT5, R"("scale_decoder_outputs":null)").spec.scale_head);
  EXPECT_TRUE(read("t5", kT5, R"("is_gated_act":null)").spec.scale_head);
  EXPECT_FALSE(read("gemma2", kDecoder, R"("tie_word_embeddings":null)").spec.tied);
}

TEST(ToldKeys, of_a_vision_model_beside_its_object_are_not_known) {
  const HfConfig config = parse_hf_config_and_keys(
      R"({"model_type":"clip","architectures":["CLIPForImageClassification"],"hidden_act":"relu",)"
      R"("hidden_size":16,"vision_config":{"hidden_size":16,"intermediate_size":20,)"
      R"("num_hidden_layers":2,"num_attention_heads":2,"hidden_act":"gelu"}})",
      "c");
  EXPECT_EQ(config.spec.mlp_act, MlpAct::gelu_erf);
  EXPECT_THAT(config.unknown, ElementsAre("hidden_act outside of vision_config"));
}

}  // namespace
}  // namespace octet::nn_told_keys_test
