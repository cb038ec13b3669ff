// Folders of every kind of model, off their defaults in all fields of config.json: what leaves by
// `convert` and as a run's export says what came in, and gives what transformers computes of it
// (tools/make_folder_goldens.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/reference/reference.h"
#include "base/json.h"
#include "cli/program_run.h"
#include "golden/distance.h"
#include "golden/drawn_weights.h"
#include "infer/export.h"
#include "infer/model_source.h"
#include "infer/weights.h"
#include "nn/hf_config.h"
#include "nn/model.h"
#include "unit/infer/put_arrays.h"

namespace octet::golden_folders {
namespace {

using golden::distance;
using golden::weights_of;
using test::Outcome;
using test::ScratchFolder;
using Values = std::vector<double>;

constexpr double kTolerance = 1e-5;  // of the largest number; both sides sum in their own orders

const Json& goldens() {
  static const Json all =
      Json::parse(posix_files().read_text(OCTET_SOURCE_DIR "/tests/golden/folders/folders.json"));
  return all;
}

// Objects of rotary positions may say more than they did, such as beta_fast of YaRN.
bool says(const Json& now, const Json& before) {
  if (before.is_object() && before.contains("full_attention")) {
    return now.size() == before.size() &&
           std::ranges::all_of(before.items(), [&](const auto& item) {
             return now.contains(item.key()) && says(now.at(item.key()), item.value());
           });
  }
  if (!before.is_object() || !before.contains("rope_type")) return now == before;
  return std::ranges::all_of(before.items(), [&](const auto& item) {
    return now.contains(item.key()) && now.at(item.key()) == item.value();
  });
}

class GoldenFolder : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    std::vector<test::ArrayToPut> arrays;
    for (const auto& [name, sides] : case_.at("tensors").items()) {
      const auto shape = sides.get<Shape>();
      arrays.push_back(test::array_of(name, SafeDtype::f32, shape, weights_of(name, shape)));
    }
    posix_files().create_directories(folder_ / "m");
    test::put_arrays(folder_ / "m/model.safetensors", arrays);
    folder_.put("m/config.json", case_.at("config").dump());
    spec_ = read_hf_config(posix_files(), folder_ / "m");
  }

  int64_t batch() const { return goldens().at("batch").get<int64_t>(); }
  int64_t seq() const { return goldens().at("seq").get<int64_t>(); }
  bool reads_pixels() const { return case_.at("inputs").contains("pixels"); }

  std::vector<float> pixels() const {
    return weights_of("pixels", {batch(), spec_.channels, spec_.image_size, spec_.image_size});
  }

  // Outputs as the golden has them: every nth number of the rows that are no padding.
  Values outputs(const std::string& at) const {
    const ModelSpec spec = read_hf_config(posix_files(), at);
    const WeightReader weights(posix_files(), at, spec);
    reference::Tensors inputs;
    for (const ParameterSpec& p : model_parameters(spec)) {
      const std::vector<float> values = weights.read(p.name);
      inputs[p.name] = Values(values.begin(), values.end());
    }
    for (const auto& [name, values] : case_.at("inputs").items()) {
      const std::vector<float> drawn = values.is_null() ? pixels() : std::vector<float>();
      inputs[name] = values.is_null() ? Values(drawn.begin(), drawn.end()) : values.get<Values>();
    }
    const Graph graph =
        build_model(spec, {.batch = batch(), .seq = seq()}, ModelOutputs::outputs).graph;
    const auto results = reference::interpret(graph, inputs);
    return shown(results.at(graph.outputs.at(0).name));
  }

  Values shown(const Values& all) const {
    Values counted = all;
    if (const Json& rows = case_.at("rows"); !rows.is_null()) {
      const size_t width = all.size() / static_cast<size_t>(batch() * seq());
      counted.clear();
      for (const size_t row : rows.get<std::vector<size_t>>())
        for (size_t i = 0; i < width; ++i) counted.push_back(all[row * width + i]);
    }
    Values result;
    const auto every = case_.at("every").get<size_t>();
    for (size_t i = 0; i < counted.size(); i += every) result.push_back(counted[i]);
    return result;
  }

  void expect_the_same(const std::string& at) const {
    const Json config = Json::parse(posix_files().read_text(at + "/config.json"));
    for (const auto& [key, value] : case_.at("config").items()) {
      ASSERT_TRUE(config.contains(key)) << key;
      EXPECT_TRUE(says(config.at(key), value)) << key << " " << config.at(key);
    }
    EXPECT_LE(distance(outputs(at), case_.at("output").get<Values>()), kTolerance);
  }

  // 0, 1, 0, 1, ...
  template <typename T>
  static test::ArrayToPut alternating(const char* name, SafeDtype stored, const Shape& shape) {
    std::vector<T> values(static_cast<size_t>(n_elems(shape)));
    for (size_t i = 1; i < values.size(); i += 2) values[i] = 1;
    return test::array_of(name, stored, shape, values);
  }
  test::ArrayToPut labels() const {
    const ModelHead head = head_of(spec_).head;
    if (head == ModelHead::multi_label)
      return alternating<float>("targets", SafeDtype::f32, {batch(), spec_.classes});
    const Shape shape = head == ModelHead::masked ? Shape{batch(), seq()} : Shape{batch()};
    return alternating<int32_t>("labels", SafeDtype::i32, shape);
  }

  // Text for decoders, arrays for the others.
  std::string data() const {
    if (model_def(spec_.kind).heads.empty())
      return folder_.put("data.txt", "a quick brown fox jumps over the lazy dog\n");
    using test::array_of;
    std::vector<test::ArrayToPut> arrays;
    if (reads_pixels()) {
      const Shape shape = {batch(), spec_.channels, spec_.image_size, spec_.image_size};
      arrays.push_back(array_of("pixels", SafeDtype::f32, shape, pixels()));
    } else {
      for (const char* name : {"tokens", "token_types"}) {
        if (!case_.at("inputs").contains(name)) continue;
        const auto ids = case_.at("inputs").at(name).get<std::vector<int32_t>>();
        arrays.push_back(array_of(name, SafeDtype::i32, {batch(), seq()}, ids));
      }
    }
    arrays.push_back(labels());
    return test::put_arrays(folder_ / "data.safetensors", arrays);
  }

  const Json& case_ = goldens().at("cases").at(GetParam());
  const ScratchFolder folder_;
  ModelSpec spec_;
};

TEST_P(GoldenFolder, leaves_by_convert_as_it_came) {
  const ModelSource source = find_model_source(posix_files(), folder_ / "m");
  export_model(posix_files(), source, folder_ / "out", {.dtype = ExportDtype::f32});
  expect_the_same(folder_ / "out");
}

// Export of a run whose step changes nothing.
TEST_P(GoldenFolder, leaves_as_the_export_of_a_run_as_it_came) {
  const std::string model_keys =
      reads_pixels() ? "" : fmt::format(" --set data.tokenizer=bytes --set model.seq={}", seq());
  const Outcome outcome = test::run_program(
      folder_,
      fmt::format("train --quiet --model {} --data {} --out {} --recipe fp32 --set train.steps=1"
                  " --set train.batch={} --set optim.lr=1e-30 --set optim.weight_decay=0"
                  " --set train.export=f32 --set data.val_fraction=0 --set train.eval_every=0"
                  " --set train.save_every=0 --set train.tensorboard=false{}",
                  folder_ / "m", data(), folder_ / "run", batch(), model_keys));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  expect_the_same(folder_ / "run/export");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, GoldenFolder, testing::Range(size_t{0}, goldens().at("cases").size()),
    [](const auto& info) {
      return goldens().at("cases").at(info.param).at("name").template get<std::string>();
    });

}  // namespace
}  // namespace octet::golden_folders
