#include "nn/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "base/error.h"
#include "ir/op_def.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/hf_names.h"
#include "nn/models_page.h"

namespace octet::nn_model_test {
namespace {

using testing::ElementsAre;

const std::vector<ModelKind> kKinds = [] {
  std::vector<ModelKind> kinds;
  for (const ModelDef* model : models()) kinds.push_back(model->kind);
  return kinds;
}();

ModelSpec tiny(ModelKind kind) {
  return {.kind = kind, .hidden = 12, .layers = 2, .heads = 2, .ffn = 20, .vocab = 11};
}

const ParameterSpec& parameter(const std::vector<ParameterSpec>& all, std::string_view name) {
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.name == name; });
  if (at == all.end()) throw Error(ErrorCode::invalid_argument, "no parameter {}", name);
  return *at;
}

struct CountCase {
  const char* name;
  ModelSpec spec;
  int64_t count;
};

// Counts published by the models' authors, or counted by hand from bench's set-ups.
const CountCase kCounts[] = {
    {"bench_25m", {}, 25'960'960},
    {"bench_124m_shape",
     {.hidden = 768, .layers = 12, .heads = 12, .ffn = 2048, .vocab = 256},
     85'347'072},
    {"llama_2_7b",
     {.hidden = 4096, .layers = 32, .heads = 32, .ffn = 11008, .vocab = 32000},
     6'738'415'616},
    {"llama_2_13b",
     {.hidden = 5120, .layers = 40, .heads = 40, .ffn = 13824, .vocab = 32000},
     13'015'864'320},
    {"llama_3_8b_grouped_query",
     {.hidden = 4096, .layers = 32, .heads = 32, .kv_heads = 8, .ffn = 14336, .vocab = 128256},
     8'030'261'248},
    {"stories260k_tied",
     {.hidden = 64, .layers = 5, .heads = 8, .kv_heads = 4, .ffn = 172, .vocab = 512, .tied = true},
     260'032},
    {"olmo_1b_tied",
     {.kind = ModelKind::olmo,
      .hidden = 2048,
      .layers = 16,
      .heads = 16,
      .ffn = 8192,
      .vocab = 50304,
      .tied = true},
     1'176'764'416},
    {"gpt2_124m",
     {.kind = ModelKind::gpt2,
      .hidden = 768,
      .layers = 12,
      .heads = 12,
      .ffn = 3072,
      .vocab = 50257,
      .max_positions = 1024,
      .tied = true},
     124'439'808},
};

TEST(Model, parameter_counts_are_the_published_ones) {
  for (const CountCase& c : kCounts) EXPECT_EQ(parameter_count(c.spec), c.count) << c.name;
}

TEST(Model, every_kind_is_listed_and_found_by_its_name) {
  for (const ModelKind kind : kKinds) {
    const ModelDef& def = model_def(kind);
    EXPECT_EQ(def.kind, kind);
    EXPECT_EQ(find_model(def.name), &def);
  }
  EXPECT_EQ(find_model("no such model"), nullptr);
}

TEST(Model, graph_inputs_are_the_parameters_then_the_batch) {
  for (const ModelKind kind : kKinds) {
    const ModelGraph model = build_model(tiny(kind), {.batch = 3, .seq = 5}, ModelOutputs::loss);
    const auto& inputs = model.graph.inputs;
    ASSERT_EQ(inputs.size(), model.parameters.size() + 4);
    for (size_t i = 0; i < model.parameters.size(); ++i) {
      EXPECT_EQ(inputs[i].name, model.parameters[i].name);
      const bool is_statistic = model.parameters[i].is_statistic;
      EXPECT_EQ(inputs[i].kind, is_statistic ? InputKind::statistic : InputKind::parameter);
      EXPECT_EQ(model.graph.type(inputs[i].value), real_type(model.parameters[i].shape));
    }
    for (const char* name : {"tokens", "positions", "labels"}) {
      const GraphInput* input = model.graph.find_input(name);
      ASSERT_NE(input, nullptr) << name;
      EXPECT_EQ(input->kind, InputKind::batch);
      EXPECT_EQ(model.graph.type(input->value), index_type({15}));
    }
    const GraphInput* inv_n = model.graph.find_input("inv_n");
    ASSERT_NE(inv_n, nullptr);
    EXPECT_EQ(inv_n->kind, InputKind::step_scalar);
    EXPECT_EQ(model.graph.type(inv_n->value), real_type({}));
  }
}

TEST(Model, outputs_are_loss_and_nll_or_logits) {
  for (const ModelKind kind : kKinds) {
    const BatchSize batch = {.batch = 3, .seq = 5};
    const Graph loss = build_model(tiny(kind), batch, ModelOutputs::loss).graph;
    ASSERT_EQ(loss.outputs.size(), 2u);
    EXPECT_EQ(loss.type(loss.find_output("loss")->value), real_type({}));
    EXPECT_EQ(loss.type(loss.find_output("nll")->value), real_type({15}));
    const Graph logits = build_model(tiny(kind), batch, ModelOutputs::outputs).graph;
    ASSERT_EQ(logits.outputs.size(), 1u);
    EXPECT_EQ(logits.type(logits.find_output("logits")->value), real_type({15, 11}));
    EXPECT_EQ(logits.find_input("labels"), nullptr);
    EXPECT_EQ(logits.find_input("inv_n"), nullptr);
  }
}

TEST(Model, every_node_carries_its_layer_and_its_module) {
  std::map<ModelKind, std::vector<std::string>> origins_of_a_layer;
  for (const ModelKind kind : kKinds) {
    const Graph graph = build_model(tiny(kind), {.batch = 1, .seq = 4}, ModelOutputs::loss).graph;
    int last_layer = -1;
    for (const Node& node : graph.nodes) {
      EXPECT_FALSE(node.tag.origin.empty());
      EXPECT_EQ(node.tag.role, Role::forward);
      if (node.tag.layer >= 0) {
        EXPECT_GE(node.tag.layer, last_layer);
        last_layer = node.tag.layer;
      }
      auto& origins = origins_of_a_layer[kind];
      if (node.tag.layer == 1 && (origins.empty() || origins.back() != node.tag.origin)) {
        origins.push_back(node.tag.origin);
      }
    }
    EXPECT_EQ(last_layer, 1);
    EXPECT_EQ(graph.nodes.front().tag.layer, -1);
    EXPECT_EQ(graph.nodes.back().tag.origin, "loss");
  }
  const auto rotary = ElementsAre("input_layernorm", "q_proj", "k_proj", "v_proj", "rotary_emb",
                                  "attention", "o_proj", "residual", "post_attention_layernorm",
                                  "gate_proj", "up_proj", "act_fn", "down_proj", "residual");
  EXPECT_THAT(origins_of_a_layer[ModelKind::llama], rotary);
  EXPECT_THAT(origins_of_a_layer[ModelKind::olmo], rotary);
  EXPECT_THAT(origins_of_a_layer[ModelKind::gpt2],
              ElementsAre("ln_1", "c_attn", "attention", "attn.c_proj", "residual", "ln_2", "c_fc",
                          "act", "mlp.c_proj", "residual"));
}

TEST(Model, names_and_shapes_are_hugging_faces) {
  const auto llama = model_parameters({.hidden = 12,
                                       .layers = 2,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .head_dim = 6,
                                       .ffn = 20,
                                       .vocab = 11});
  EXPECT_EQ(llama.size(), 2u * 9 + 3);
  EXPECT_EQ(parameter(llama, "model.embed_tokens.weight").shape, Shape({11, 12}));
  EXPECT_EQ(parameter(llama, "model.layers.1.self_attn.q_proj.weight").shape, Shape({24, 12}));
  EXPECT_EQ(parameter(llama, "model.layers.1.self_attn.v_proj.weight").shape, Shape({12, 12}));
  EXPECT_EQ(parameter(llama, "model.layers.1.self_attn.o_proj.weight").shape, Shape({12, 24}));
  EXPECT_EQ(parameter(llama, "model.layers.0.mlp.down_proj.weight").shape, Shape({12, 20}));
  EXPECT_EQ(parameter(llama, "model.layers.0.post_attention_layernorm.weight").shape, Shape({12}));
  EXPECT_EQ(parameter(llama, "lm_head.weight").shape, Shape({11, 12}));

  EXPECT_EQ(model_parameters(tiny(ModelKind::olmo)).size(), 2u * 7 + 2);

  const auto gpt2 = model_parameters(tiny(ModelKind::gpt2));
  EXPECT_EQ(parameter(gpt2, "transformer.wpe.weight").shape, Shape({2048, 12}));
  EXPECT_EQ(parameter(gpt2, "transformer.h.1.attn.c_attn.weight").shape, Shape({12, 36}));
  EXPECT_EQ(parameter(gpt2, "transformer.h.1.mlp.c_fc.bias").shape, Shape({20}));
}

TEST(Model, a_tied_head_reads_the_embedding_and_has_no_weight) {
  for (const ModelKind kind : kKinds) {
    ModelSpec spec = tiny(kind);
    spec.tied = true;
    const ModelGraph model = build_model(spec, {.batch = 1, .seq = 4}, ModelOutputs::outputs);
    EXPECT_EQ(model.graph.find_input("lm_head.weight"), nullptr);
    const auto head = std::find_if(model.graph.nodes.begin(), model.graph.nodes.end(),
                                   [](const Node& n) { return n.tag.origin == "lm_head"; });
    ASSERT_NE(head, model.graph.nodes.end());
    EXPECT_EQ(head->operands[1], model.graph.nodes.front().operands[0]);
  }
}

TEST(Model, only_matrices_that_are_no_embeddings_decay) {
  for (const bool tied : {false, true}) {
    for (const ModelKind kind : kKinds) {
      ModelSpec spec = tiny(kind);
      spec.tied = tied;
      for (const ParameterSpec& p : model_parameters(spec)) {
        const bool is_embedding = std::regex_search(
            p.name, std::regex("embed_tokens|embed_positions|embed_in|wte|wpe|conv1d"));
        EXPECT_EQ(p.decay, p.shape.size() == 2 && !is_embedding) << p.name;
      }
    }
  }
}

TEST(Model, initialisation_narrows_what_ends_in_the_residual_stream) {
  const std::set<ModelKind> factors_from_one = {ModelKind::gemma, ModelKind::gemma2,
                                                ModelKind::gemma3, ModelKind::nemotron,
                                                ModelKind::qwen3_5};
  for (const ModelKind kind : kKinds) {
    for (const ParameterSpec& p : model_parameters(tiny(kind))) {
      if (p.shape.size() == 1) {
        const bool is_from_one =
            factors_from_one.contains(kind) && p.name.find("linear_attn") == std::string::npos;
        const bool is_zero = p.name.ends_with(".bias") || is_from_one;
        EXPECT_EQ(p.init, is_zero ? Init::zeros : Init::ones) << p.name;
        continue;
      }
      const bool residual = std::regex_search(
          p.name, std::regex("o_proj|out_proj|down_proj|c_proj|fc2|dense.weight|4h_to_h"));
      EXPECT_EQ(p.init, Init::normal) << p.name;
      if (p.name.ends_with("conv1d.weight")) continue;  // of other inputs than linears
      EXPECT_DOUBLE_EQ(p.std, residual ? 0.02 / std::sqrt(2.0 * 2) : 0.02) << p.name;
    }
  }
}

TEST(Model, sizes_that_divide_nothing_build_and_verify) {
  for (ModelSpec spec : {ModelSpec{.hidden = 39, .heads = 3, .head_dim = 10},
                         ModelSpec{.hidden = 21, .heads = 5, .kv_heads = 1, .head_dim = 2},
                         ModelSpec{.hidden = 1, .heads = 1, .head_dim = 2}}) {
    spec.layers = 3, spec.ffn = 17, spec.vocab = 101;
    for (const ModelKind kind : kKinds) {
      if (!model_def(kind).grouped_heads && spec.kv_heads != 0) continue;
      spec.kind = kind;
      for (const BatchSize batch : {BatchSize{1, 1}, BatchSize{3, 7}, BatchSize{1, 513}}) {
        for (const ModelOutputs outputs : {ModelOutputs::loss, ModelOutputs::outputs}) {
          EXPECT_NO_THROW(verify(build_model(spec, batch, outputs).graph));
        }
      }
    }
  }
}

TEST(Model, graph_prints_and_parses_back_to_itself) {
  for (const ModelKind kind : kKinds) {
    const Graph graph = build_model(tiny(kind), {.batch = 2, .seq = 3}, ModelOutputs::loss).graph;
    EXPECT_EQ(parse_graph(print(graph)), graph);
  }
}

TEST(Model, rotary_scaling_reaches_every_rope) {
  ModelSpec spec = tiny(ModelKind::llama);
  spec.rope_theta = 500000, spec.rope_scaling = RopeScaling::llama3, spec.rope_factor = 8;
  spec.rope_original_max_position = 4096;
  int n_ropes = 0;
  const Graph graph = build_model(spec, {.batch = 1, .seq = 4}, ModelOutputs::outputs).graph;
  for (const Node& node : graph.nodes) {
    if (node.op != OpCode::rope) continue;
    ++n_ropes;
    const RopeAttrs expected = {.heads = 2,
                                .head_dim = 6,
                                .theta = 500000,
                                .scaling = RopeScaling::llama3,
                                .factor = 8,
                                .low_freq_factor = 1,
                                .high_freq_factor = 4,
                                .original_max_position = 4096};
    EXPECT_EQ(std::get<RopeAttrs>(node.attrs), expected);
  }
  EXPECT_EQ(n_ropes, 4);
}

struct BadSpec {
  ModelSpec spec;
  const char* message;
};

TEST(Model, refuses_what_is_no_model_and_says_what_it_expected) {
  const BadSpec cases[] = {
      {{.hidden = 0}, "[model] hidden: expected an integer in [1, 1048576], got 0"},
      {{.layers = -1}, "[model] layers: expected an integer in [1, 4096], got -1"},
      {{.heads = 0}, "[model] heads: expected an integer in [1, 4096], got 0"},
      {{.vocab = 0}, "[model] vocab: expected an integer in [2, 16777216], got 0"},
      {{.hidden = 100, .heads = 8}, "[model] heads: expected a divisor of hidden = 100, got 8"},
      {{.heads = 8, .kv_heads = 3}, "[model] kv_heads: expected a divisor of heads = 8, got 3"},
      {{.norm_eps = 0}, "[model] norm_eps: expected a number in [1e-30, 1], got 0"},
      {{.hidden = 24, .heads = 8},
       "[model] head_dim: expected an even width of a head for rotary positions, got 3"},
      {{.kind = ModelKind::olmo, .rope_theta = -1},
       "[model] rope_theta: expected a number in [1, 1000000000000000], got -1"},
      {{.rope_scaling = RopeScaling::linear, .rope_factor = 0},
       "[model] rope_scaling.factor: expected a number in [1, 16777216], got 0"},
      {{.rope_scaling = RopeScaling::llama3, .rope_high_freq_factor = 0.5},
       "[model] rope_scaling.high_freq_factor: expected more than rope_scaling.low_freq_factor = "
       "1, "
       "got 0.5"},
      {{.rope_theta = 1, .rope_scaling = RopeScaling::yarn},
       "[model] rope_theta: expected more than 1 with scaling yarn, got 1"},
      {{.kind = ModelKind::olmo3, .layers = 3, .sliding_window = 4, .window_layers = {1, 0}},
       "[model] window_layers: expected one for each of layers = 3, got [1, 0]"},
      {{.kind = ModelKind::olmo3, .layers = 2, .sliding_window = 4, .window_layers = {0, 2}},
       "[model] window_layers: expected a list of integers in [0, 1], got [0, 2]"},
      {{.hidden = 32,
        .heads = 4,
        .rope_scaling = RopeScaling::longrope,
        .rope_short_factor = {1, 2, 3, 4},
        .rope_long_factor = {1}},
       "[model] rope_scaling.long_factor: expected 4 numbers, one for each rotated pair of a head, "
       "got 1"},
      {{.kind = ModelKind::ministral3, .llama4_beta = 0.5},
       "[model] rope_scaling.llama_4_scaling_beta: expected 0 without an original length (scaling "
       "yarn, longrope or llama3), got 0.5"},
      {{.kind = ModelKind::gpt2, .kv_heads = 4},
       "[model] kv_heads: expected heads = 8 for kind gpt2, got 4"},
      {{.kind = ModelKind::gpt2, .max_positions = 0},
       "[model] max_positions: expected an integer in [1, 16777216], got 0"},
  };
  for (const BadSpec& bad : cases) {
    try {
      resolved(bad.spec);
      ADD_FAILURE() << "no error for: " << bad.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_STREQ(error.what(), bad.message);
    }
  }
}

TEST(Model, refuses_an_empty_batch_and_a_sequence_beyond_the_position_table) {
  const auto message = [](const ModelSpec& spec, const BatchSize& batch) -> std::string {
    try {
      build_model(spec, batch, ModelOutputs::outputs);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(tiny(ModelKind::llama), {.batch = 0, .seq = 4}),
            "[model] expected a batch of at least 1 sequence of 1 token, got 0 of 4");
  ModelSpec gpt2 = tiny(ModelKind::gpt2);
  gpt2.max_positions = 8;
  EXPECT_EQ(message(gpt2, {.batch = 1, .seq = 8}), "");
  EXPECT_EQ(message(gpt2, {.batch = 1, .seq = 9}),
            "[model] expected sequences of at most max_positions 8, got 9");
}

struct NameCase {
  ModelKind kind;
  bool tied;
  const char* stored;
  std::optional<std::string> name;
};

TEST(HfNames, variants_of_checkpoints_map_to_the_models_names) {
  const NameCase cases[] = {
      {ModelKind::gpt2, true, "wte.weight", "transformer.wte.weight"},
      {ModelKind::gpt2, true, "transformer.h.0.ln_1.bias", "transformer.h.0.ln_1.bias"},
      {ModelKind::gpt2, true, "h.0.attn.c_attn.bias", "transformer.h.0.attn.c_attn.bias"},
      {ModelKind::gpt2, true, "h.0.attn.bias", std::nullopt},
      {ModelKind::gpt2, true, "transformer.h.3.attn.masked_bias", std::nullopt},
      {ModelKind::gpt2, true, "lm_head.weight", std::nullopt},
      {ModelKind::llama, false, "lm_head.weight", "lm_head.weight"},
      {ModelKind::llama, false, "layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"},
      {ModelKind::llama, false, "model.layers.0.self_attn.rotary_emb.inv_freq", std::nullopt},
      {ModelKind::olmo, true, "model.embed_tokens.weight", "model.embed_tokens.weight"},
  };
  for (const NameCase& c : cases) {
    ModelSpec spec = tiny(c.kind);
    spec.tied = c.tied;
    EXPECT_EQ(parameter_name(spec, c.stored), c.name) << c.stored;
  }
}

TEST(HfNames, every_parameter_is_its_own_name) {
  for (const ModelKind kind : kKinds) {
    for (const ParameterSpec& p : model_parameters(tiny(kind))) {
      EXPECT_EQ(parameter_name(tiny(kind), p.name), p.name);
    }
  }
}

TEST(ModelsPage, is_what_the_tables_say) {
  std::ifstream file(OCTET_SOURCE_DIR "/docs/models.md");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text, models_markdown()) << "octet docs models > docs/models.md";
}

// Formats, machines and what is kept are the passes' business.
TEST(ModelSources, name_no_format_machine_or_schedule_of_memory) {
  const std::regex forbidden(
      R"(Dtype|\b(f32|f16|bf16|fp8|e4m3|e5m2|hif8|cuda|gpu|device|recompute)\b|\brank)",
      std::regex::icase);
  int n_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(OCTET_SOURCE_DIR "/src/nn")) {
    if (entry.path().filename() == "models_page.cpp") continue;  // tells of files
    ++n_files;
    std::ifstream file(entry.path());
    int number = 0;
    const std::regex key_of_other_programs(R"("(torch_|mamba_ssm_)?dtype")");
    for (std::string line; std::getline(file, line);) {
      ++number;
      line = std::regex_replace(line, key_of_other_programs, "");
      EXPECT_FALSE(std::regex_search(line, forbidden))
          << entry.path() << ":" << number << ": " << line;
    }
  }
  EXPECT_GE(n_files, 3);
}

}  // namespace
}  // namespace octet::nn_model_test
