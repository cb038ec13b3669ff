// Adapters' folders as PEFT writes them: what a model computes with one is what PEFT computes
// (tools/make_adapter_goldens.py), and what would change that is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <stdexcept>

#include "backends/cpu/reference/reference.h"
#include "base/json.h"
#include "cli/program_run.h"
#include "golden/distance.h"
#include "golden/drawn_weights.h"
#include "infer/export.h"
#include "infer/model_source.h"
#include "infer/peft_adapter.h"
#include "infer/weights.h"
#include "nn/model.h"
#include "passes/autodiff.h"
#include "passes/rewrite/simplify.h"
#include "unit/base/error_of.h"
#include "unit/infer/put_arrays.h"

namespace octet::golden_adapters {
namespace {

using golden::distance;
using golden::weights_of;
using test::error_of;
using test::ScratchFolder;
using testing::HasSubstr;
using Values = std::vector<double>;

constexpr double kTolerance = 1e-5;  // of the largest number; both sides sum in their own orders

const Json& goldens() {
  static const Json all =
      Json::parse(posix_files().read_text(OCTET_SOURCE_DIR "/tests/golden/adapters/adapters.json"));
  return all;
}

void put_tensors(const std::string& path, const Json& tensors) {
  std::vector<test::ArrayToPut> arrays;
  for (const auto& [name, sides] : tensors.items()) {
    const auto shape = sides.get<Shape>();
    const std::string as = goldens().at("same").value(name, name);
    arrays.push_back(test::array_of(name, SafeDtype::f32, shape, weights_of(as, shape)));
  }
  test::put_arrays(path, arrays);
}

// A base and an adapter's folder beside it.
struct Put {
  // Written by write() as it is then.
  explicit Put(const Json& of) : base(of.at("base")), config(of.at("config")) {
    tensors = of.at("tensors");
  }
  void write() const {
    const Json& model = goldens().at("bases").at(base);
    posix_files().create_directories(folder / "base");
    posix_files().create_directories(folder / "adapter");
    put_tensors(folder / "base/model.safetensors", model.at("tensors"));
    folder.put("base/config.json", model.at("config").dump());
    put_tensors(folder / "adapter/adapter_model.safetensors", tensors);
    folder.put("adapter/adapter_config.json", config.dump());
  }
  ModelSource source() const {
    return with_adapter(posix_files(), find_model_source(posix_files(), folder / "base"),
                        folder / "adapter");
  }
  std::string error() const {
    return error_of([&] { source(); }, folder.path());
  }
  ScratchFolder folder;
  std::string base;
  Json config, tensors;
};

const Json& case_named(std::string_view name) {
  for (const Json& one : goldens().at("cases")) {
    if (one.at("name") == name) return one;
  }
  throw std::invalid_argument("no such case");
}

Values logits_of(const ModelSource& source) {
  const WeightReader weights(posix_files(), source.weights, source.spec);
  reference::Tensors inputs;
  for (const ParameterSpec& p : model_parameters(source.spec)) {
    const std::vector<float> values = weights.read(p.name);
    inputs[p.name] = Values(values.begin(), values.end());
  }
  const auto batch = goldens().at("batch").get<int64_t>(), seq = goldens().at("seq").get<int64_t>();
  inputs["tokens"] = goldens().at("tokens").get<Values>();
  for (int64_t i = 0; i < batch * seq; ++i)
    inputs["positions"].push_back(static_cast<double>(i % seq));
  const Graph graph =
      build_model(source.spec, {.batch = batch, .seq = seq}, ModelOutputs::outputs).graph;
  const Values all = reference::interpret(graph, inputs).at("logits");
  Values shown;
  for (size_t i = 0; i < all.size(); i += goldens().at("every").get<size_t>())
    shown.push_back(all[i]);
  return shown;
}

class Adapter : public testing::TestWithParam<size_t> {
 protected:
  const Json& golden() const { return goldens().at("cases").at(GetParam()); }
};

TEST_P(Adapter, gives_pefts_logits) {
  const Put put(golden());
  put.write();
  EXPECT_LE(distance(logits_of(put.source()), golden().at("output").get<Values>()), kTolerance);
}

TEST_P(Adapter, merged_is_a_model_of_its_own) {
  const Put put(golden());
  put.write();
  export_model(posix_files(), put.source(), put.folder / "merged", {});
  const ModelSource merged = find_model_source(posix_files(), put.folder / "merged");
  EXPECT_LE(distance(logits_of(merged), golden().at("output").get<Values>()), kTolerance);
}

// |W| of each output.
Values norms_of(const Values& weight, const LoraAdapter& adapter) {
  Values squares(static_cast<size_t>(adapter.n_out));
  const auto n_cols = static_cast<size_t>(adapter.out_in ? adapter.n_in : adapter.n_out);
  for (size_t i = 0; i < weight.size(); ++i)
    squares[adapter.out_in ? i / n_cols : i % n_cols] += weight[i] * weight[i];
  for (double& value : squares) value = std::sqrt(value);
  return squares;
}

reference::Tensors inputs_of_training(const PeftAdapter& adapter, const Put& put,
                                      const ModelSource& base) {
  reference::Tensors inputs;
  const auto all = [](const std::vector<float>& values) {
    return Values(values.begin(), values.end());
  };
  const WeightReader weights(posix_files(), base.weights, base.spec);
  for (const ParameterSpec& p : model_parameters(base.spec))
    inputs[p.name] = all(weights.read(p.name));
  for (const PeftLinear& one : adapter.linears) {
    const LoraAdapter& lora = one.adapter;
    const auto drawn = [&](const std::string& tensor) {
      return all(weights_of(tensor, put.tensors.at(tensor).get<Shape>()));
    };
    inputs[lora.a()] = drawn(one.a);
    inputs[lora.b()] = drawn(one.b);
    if (one.magnitude.empty()) continue;
    inputs[lora.magnitude()] = drawn(one.magnitude);
    inputs[lora_norm_name(lora.module)] = norms_of(inputs.at(lora.weight()), lora);
  }
  const auto seq = goldens().at("seq").get<size_t>();
  inputs["tokens"] = goldens().at("tokens").get<Values>();
  for (size_t i = 0; i < inputs["tokens"].size(); ++i) {
    const bool is_last = i % seq == seq - 1;
    inputs["positions"].push_back(static_cast<double>(i % seq));
    inputs["labels"].push_back(is_last ? kIgnoredLabel : inputs["tokens"][i + 1]);
  }
  inputs["inv_n"] = {1 / (goldens().at("batch").get<double>() * static_cast<double>(seq - 1))};
  return inputs;
}

// Gradients of cases that have some: the next token's loss, by the pass that training runs.
TEST_P(Adapter, has_pefts_gradients) {
  if (!golden().contains("gradients")) return;
  const Put put(golden());
  put.write();
  const ModelSource base = find_model_source(posix_files(), put.folder / "base");
  const PeftAdapter adapter = read_peft_adapter(posix_files(), put.folder / "adapter", base.spec);
  LoraOptions lora = peft_training(adapter, base.spec).lora;
  lora.dropout = 0;
  const BatchSize size{.batch = goldens().at("batch"), .seq = goldens().at("seq")};
  const Graph graph =
      simplify(autodiff(add_lora(build_model(base.spec, size, ModelOutputs::loss).graph, lora)));
  const auto results = reference::interpret(graph, inputs_of_training(adapter, put, base));
  const auto every = goldens().at("every").get<size_t>();
  size_t n_compared = 0;
  const auto expect_pefts = [&](const std::string& parameter, const std::string& tensor) {
    const bool is_magnitude = tensor.ends_with("lora_magnitude_vector");
    const Values& all = results.at("grad:" + parameter);
    Values shown;
    for (size_t i = 0; i < all.size(); i += every) shown.push_back(all[i]);
    const Json& expected = golden().at("gradients").at(tensor + (is_magnitude ? ".weight" : ""));
    EXPECT_LE(distance(shown, expected.get<Values>()), kTolerance) << tensor;
    ++n_compared;
  };
  for (const PeftLinear& one : adapter.linears) {
    expect_pefts(one.adapter.a(), one.a);
    expect_pefts(one.adapter.b(), one.b);
    if (!one.magnitude.empty()) expect_pefts(one.adapter.magnitude(), one.magnitude);
  }
  EXPECT_EQ(n_compared, golden().at("gradients").size());
}

INSTANTIATE_TEST_SUITE_P(all, Adapter, testing::Range(size_t{0}, goldens().at("cases").size()),
                         [](const auto& info) {
                           std::string name = goldens().at("cases").at(info.param).at("name");
                           for (char& ch : name) ch = ch == ' ' ? '_' : ch;
                           return name;
                         });

TEST(AdapterFolder, is_a_model_where_its_base_is_there) {
  Put put(case_named("biases"));
  put.config["base_model_name_or_path"] = put.folder / "base";
  put.write();
  const ModelSource source = find_model_source(posix_files(), put.folder / "adapter");
  EXPECT_EQ(source.folder, put.folder / "base");
  EXPECT_EQ(source.weights.adapter, put.folder / "adapter");
  put.config["base_model_name_or_path"] = "org/name";
  put.write();
  EXPECT_THAT(error_of([&] { find_model_source(posix_files(), put.folder / "adapter"); }),
              HasSubstr("--model BASE --adapter"));
}

// PEFT saves each module whose path ends with a name, in no whole parts, and passes over names that
// the base has not beside one that it has; a whole path as a target is in every layer.
TEST(AdapterFolder, has_pefts_rules_of_names) {
  const std::string prefix = "base_model.model.";
  Put put(case_named("rslora with patterns"));
  put.config["modules_to_save"] = {"score", "norm"};
  for (const char* norm :
       {"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm",
        "model.layers.1.input_layernorm", "model.layers.1.post_attention_layernorm"})
    put.tensors[prefix + norm + ".weight"] = {16};
  put.write();
  const ModelSpec base = find_model_source(posix_files(), put.folder / "base").spec;
  EXPECT_EQ(read_peft_adapter(posix_files(), put.folder / "adapter", base).saved.size(), 5u);
  PeftConfig config;
  config.targets.names = {"lm_head", "q_proj"};
  config.layers = {1};
  EXPECT_TRUE(is_targeted(config, {.path = "lm_head"}));
  EXPECT_TRUE(is_targeted(config, {.path = "model.layers.1.self_attn.q_proj"}));
  EXPECT_FALSE(is_targeted(config, {.path = "model.layers.0.self_attn.q_proj"}));
}

// With `bias: all` the biases of what is saved stand twice in the file, and the base's beside them.
TEST(AdapterFolder, may_say_a_saved_modules_biases_again) {
  Put put(case_named("biases"));
  const std::string path = "base_model.model.model.layers.0.self_attn.o_proj";
  put.config["modules_to_save"] = {"layers.0.self_attn.o_proj"};
  put.tensors[path + ".weight"] = {16, 16};
  put.tensors[path + ".original_module.bias"] = {16};
  put.write();
  EXPECT_EQ(put.error(), "no error");
  put.tensors[path + ".modules_to_save.default.bias"] = {16};  // of other values
  put.write();
  EXPECT_THAT(put.error(), HasSubstr("modules_to_save.default.bias"));
}

// Keys that make another function of the same tensors.
TEST(AdapterFolder, says_each_key_that_it_cannot_follow) {
  const std::pair<const char*, const char*> changes[] = {
      {"peft_type", R"("LOHA")"},
      {"init_lora_weights", R"("pissa")"},
      {"init_lora_weights", R"("olora")"},
      {"init_lora_weights", R"("loftq")"},
      {"init_lora_weights", R"("corda")"},
      {"layer_replication", "[[0, 1], [0, 2]]"},
      {"lora_bias", "true"},
      {"megatron_config", R"({"tensor_model_parallel_size": 2})"},
      {"trainable_token_indices", "[3, 4]"},
      {"target_parameters", R"(["mlp.experts.gate_up_proj"])"},
      {"alora_invocation_tokens", "[5]"},
      {"use_qalora", "true"},
      {"velora_config", R"({"scale": 2})"},
      {"monteclora_config", R"({"num_samples": 2})"},
      {"arrow_config", R"({"top_k": 2})"},
      {"kasa_config", R"({"beta": 0.1})"},
      {"use_bdlora", R"({"nblocks": 2})"},
      {"what_comes_next", "1"},
      {"layers_pattern", R"("layers")"},
      {"bias", R"("some")"},
      {"r", "0"},
      {"lora_alpha", R"("x")"},
      {"target_modules", "null"},
      {"target_modules", R"("(")"},
      {"modules_to_save", R"(["classifier"])"},
      {"ensure_weight_tying", "1"},
  };
  for (const auto& [key, value] : changes) {
    Put put(case_named("rslora with patterns"));
    put.config[key] = Json::parse(value);
    put.write();
    const std::string error = put.error();
    const bool is_named = error.find(key) != error.npos || error.find("regular") != error.npos;
    EXPECT_TRUE(is_named) << key << " " << value << ": " << error;
  }
}

TEST(AdapterFolder, that_does_not_fit_its_base_is_refused) {
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  struct Change {
    std::string what, expected;
    std::function<void(Put&)> make;
  };
  const Change changes[] = {
      {"another width", "[4,16]",
       [&](Put& p) {
         p.tensors[q] = {4, 12};
       }},
      {"another rank", "[4,16]",
       [&](Put& p) {
         p.tensors[q] = {3, 16};
       }},
      {"a factor is missing", "layers.0.self_attn.q_proj", [&](Put& p) { p.tensors.erase(q); }},
      {"a module that is not there", "layers.7",
       [](Put& p) {
         p.tensors["base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight"] = {4, 16};
       }},
      {"a module that is no target", "target_modules",
       [](Put& p) {
         p.tensors["base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"] = {4, 16};
         p.tensors["base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"] = {24, 4};
       }},
      {"a magnitude", "use_dora",
       [](Put& p) {
         p.tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"] = {16};
       }},
      {"a bias of a factor", "lora_A.bias",
       [](Put& p) {
         p.tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_A.bias"] = {4};
       }},
      {"a whole weight", "modules_to_save",
       [](Put& p) { p.tensors["base_model.model.model.norm.weight"] = {16}; }},
      {"another family", "base", [](Put& p) { p.base = "gpt2"; }},
  };
  for (const Change& change : changes) {
    Put put(case_named("rslora with patterns"));
    change.make(put);
    put.write();
    EXPECT_THAT(put.error(), HasSubstr(change.expected)) << change.what;
  }
}

}  // namespace
}  // namespace octet::golden_adapters
