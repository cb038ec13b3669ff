// config.json of models whose layers differ: sliding windows, and the angles that go with them.
#include <gtest/gtest.h>

#include "nn/hf_config.h"
#include "nn/hf_names.h"
#include "unit/base/error_of.h"

namespace octet::nn_layer_types_test {
namespace {

using test::error_of;

TEST(LayerTypes, sliding_windows_of_either_spelling) {
  const std::string core = R"(,"hidden_size":64,"intermediate_size":172,"num_hidden_layers":3,)"
                           R"("num_attention_heads":8,"num_key_value_heads":8,"vocab_size":512)";
  const auto read = [&](const std::string& type, const std::string& more) {
    return parse_hf_config(R"({"model_type":")" + type + "\"" + core + more + "}", "c");
  };
  EXPECT_EQ(read("mistral", "").sliding_window, 4096);  // as transformers has it
  EXPECT_EQ(read("mistral", R"(,"sliding_window":null)").sliding_window, 0);
  EXPECT_EQ(read("mistral", R"(,"sliding_window":16)").sliding_window, 16);
  EXPECT_EQ(read("qwen2", R"(,"sliding_window":16,"max_window_layers":1)").sliding_window, 0);
  const std::string on = R"(,"sliding_window":16,"use_sliding_window":true)";
  EXPECT_EQ(read("qwen2", on + R"(,"max_window_layers":1)").window_from, 1);
  EXPECT_EQ(read("qwen2", on).window_from, 28);
  const std::string types =
      R"(,"layer_types":["full_attention","full_attention","sliding_attention"])";
  EXPECT_EQ(read("qwen3", on + types).window_from, 2);
  EXPECT_EQ(error_of([&] { read("qwen3", types); }),
            "[config.json] c: 'layer_types': expected full_attention of all layers, got "
            "\"sliding_attention\" for layer 2");
  EXPECT_EQ(error_of([&] { read("mistral", types); }),
            "[config.json] c: 'layer_types': expected sliding_attention for model_type mistral, "
            "got \"full_attention\" for layer 0");
  const auto windows = [&](const std::string& type, const std::string& more) {
    return read(type, more).window_layers;
  };
  using Layers = std::vector<int64_t>;
  const std::string mixed =
      R"(,"layer_types":["sliding_attention","full_attention","sliding_attention"])";
  EXPECT_EQ(windows("qwen3", on + mixed), (Layers{1, 0, 1}));
  EXPECT_EQ(windows("qwen3", on + types), Layers{});
  EXPECT_EQ(windows("ministral", mixed), (Layers{1, 0, 1}));
  EXPECT_EQ(windows("olmo3", ""), (Layers{1, 1, 1}));
  EXPECT_EQ(windows("olmo3", mixed), (Layers{1, 0, 1}));
  EXPECT_EQ(windows("gemma3_text", R"(,"sliding_window_pattern":2)"), (Layers{1, 0, 1}));
  EXPECT_EQ(windows("gemma3_text", R"(,"sliding_window_pattern":2)" + types), (Layers{0, 0, 1}));
}

// A list says it, else every n-th layer is of attention, as in transformers.
TEST(LayerTypes, layers_of_the_gated_delta_rule) {
  using Layers = std::vector<int64_t>;
  const auto layers = [](const std::string& more) {
    return parse_hf_config(
               R"({"model_type":"qwen3_5_text","hidden_size":64,"intermediate_size":172,)"
               R"("num_hidden_layers":4,"num_attention_heads":8,"vocab_size":512)" +
                   more + "}",
               "c")
        .linear_layers;
  };
  const std::string types = R"(,"layer_types":["full_attention","linear_attention",)"
                            R"("linear_attention","full_attention"])";
  EXPECT_EQ(layers(""), (Layers{1, 1, 1, 0}));
  EXPECT_EQ(layers(R"(,"full_attention_interval":2)"), (Layers{1, 0, 1, 0}));
  EXPECT_EQ(layers(R"(,"full_attention_interval":8)"), (Layers{1, 1, 1, 1}));
  EXPECT_EQ(layers(types + R"(,"full_attention_interval":2)"), (Layers{0, 1, 1, 0}));
  EXPECT_EQ(error_of([&] { layers(R"(,"full_attention_interval":0)"); }),
            "[config.json] c: 'full_attention_interval': expected 1 or more, got 0");
}

// Transformers 5 has an object for each sort of layer, older files a key for the windows' base.
TEST(LayerTypes, angles_that_differ_by_layer) {
  const auto read = [](const std::string& more) {
    return parse_hf_config_and_keys(
        R"({"model_type":"gemma3_text","hidden_size":64,"intermediate_size":172,"vocab_size":512,)"
        R"("num_hidden_layers":3,"num_attention_heads":8,"num_key_value_heads":8)" +
            more + "}",
        "c");
  };
  const ModelSpec usual = read("").spec;
  EXPECT_EQ(usual.rope_theta, 1e6);
  EXPECT_EQ(usual.window_rope_theta, 1e4);
  const ModelSpec older = read(R"(,"rope_theta":5e5,"rope_local_base_freq":200,"rope_scaling":)"
                               R"({"rope_type":"linear","factor":8})")
                              .spec;
  const auto nested = [&](const std::string& full, const std::string& window) {
    return read(R"(,"rope_parameters":{"full_attention":{"rope_theta":5e5,)" + full +
                R"(},"sliding_attention":{"rope_theta":200,)" + window + "}}");
  };
  const HfConfig newer = nested(R"("rope_type":"linear","factor":8)", R"("rope_type":"default")");
  EXPECT_EQ(newer.spec, older);
  EXPECT_EQ(newer.unknown, std::vector<std::string>{});
  EXPECT_EQ(older.rope_factor, 8);
  EXPECT_EQ(older.window_rope_theta, 200);
  EXPECT_EQ(error_of([&] { nested(R"("rope_type":"default")", R"("rope_type":"linear")"); }),
            "[config.json] c: 'rope_type': expected \"default\" for model_type gemma3_text, got "
            "\"linear\"");
}

// As transformers passes over them.
TEST(LayerTypes, tensors_of_keys_and_values_that_no_layer_reads_are_none) {
  const ModelSpec spec{.kind = ModelKind::gemma4, .layers = 12, .shared_kv_layers = 2};
  for (const char* unread : {"k_proj.weight", "v_proj.weight", "k_norm.weight"}) {
    const std::string own = fmt::format("model.layers.1.self_attn.{}", unread);
    EXPECT_EQ(parameter_name(spec, own), own);
    for (const char* layer : {"model.layers.10.", "layers.11."})
      EXPECT_EQ(parameter_name(spec, fmt::format("{}self_attn.{}", layer, unread)), std::nullopt);
  }
  const std::string query = "model.layers.11.self_attn.q_proj.weight";
  EXPECT_EQ(parameter_name(spec, query), query);
}

}  // namespace
}  // namespace octet::nn_layer_types_test
