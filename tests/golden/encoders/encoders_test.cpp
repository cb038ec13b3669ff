// Every encoder against transformers' on the same file, or PyTorch's modules where transformers has
// no such model: what its head gives, and all gradients.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/backend.h"
#include "backends/cpu/reference/reference.h"
#include "base/files.h"
#include "compile/lower.h"
#include "golden/distance.h"
#include "io/safetensors.h"
#include "ir/builder.h"
#include "nn/hf_config.h"
#include "nn/hf_names.h"
#include "nn/model.h"
#include "passes/autodiff.h"

namespace octet::golden_encoders {
namespace {

constexpr std::string_view kFolder = OCTET_SOURCE_DIR "/tests/golden/encoders";
// transformers computes in f32; gradients come from f32 sums in other orders.
constexpr double kTolerance = 1e-5, kGradientTolerance = 1e-4;

using golden::distance;
using Values = std::vector<double>;

struct Fixture {
  ModelSpec spec;
  BatchSize size;
  std::map<std::string, Values> tensors;
};

template <typename T>
Values widened(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return {values.begin(), values.end()};
}

Fixture load(const std::string& name) {
  const auto reader =
      SafetensorsReader::open(posix_files(), fmt::format("{}/{}.safetensors", kFolder, name));
  Fixture fixture{.spec = parse_hf_config(reader.metadata().at("config"), "config.json"),
                  .size = {.batch = std::stoll(reader.metadata().at("batch")),
                           .seq = std::stoll(reader.metadata().at("seq"))},
                  .tensors = {}};
  if (name.ends_with("_embeddings")) fixture.spec.head = ModelHead::embeddings;
  for (const StoredTensor& tensor : reader.tensors()) {
    if (tensor.name == "i:pictures") fixture.spec.images = tensor.shape[1];
    const std::vector<std::byte> bytes = reader.read(tensor.name);
    fixture.tensors[tensor.name] =
        tensor.stored == SafeDtype::i32 ? widened<int32_t>(bytes) : widened<float>(bytes);
  }
  return fixture;
}

// Elements of files as memory has them: of a convolution's [out, in, taps] first the channels.
Values in_memory(const ParameterSpec& p, const Values& file) {
  if (!p.channels_last) return file;
  const auto n_in = static_cast<size_t>(p.file_shape[1]);
  const size_t row = file.size() / static_cast<size_t>(p.shape[0]), n_taps = row / n_in;
  Values memory(file.size());
  for (size_t i = 0; i < file.size(); ++i) {
    const size_t at = i % row;
    memory[i - at + at % n_taps * n_in + at / n_taps] = file[i];
  }
  return memory;
}

class GoldenEncoder : public testing::TestWithParam<std::string> {
 protected:
  const Fixture fixture_ = load(GetParam());

  reference::Tensors inputs() const {
    reference::Tensors result;
    for (const auto& [name, values] : fixture_.tensors) {
      const std::string rest = name.substr(std::min<size_t>(2, name.size()));
      if (name.starts_with("i:")) result[rest] = values;
      if (!name.starts_with("w:")) continue;
      if (const auto parameter = parameter_name(fixture_.spec, rest)) result[*parameter] = values;
    }
    for (const ParameterSpec& p : model_parameters(fixture_.spec))
      result.at(p.name) = in_memory(p, result.at(p.name));
    for (const char* name : {"dout", "dout_2"}) {
      if (const auto at = fixture_.tensors.find(name); at != fixture_.tensors.end())
        result[name] = at->second;
    }
    return result;
  }

  // With the output "loss", sum(output * dout) of all outputs.
  Graph graph() const {
    Graph graph = build_model(fixture_.spec, fixture_.size, ModelOutputs::outputs).graph;
    Builder b(graph);
    ValueId loss = kNoValue;
    for (size_t n = 0, all = graph.outputs.size(); n < all; ++n) {
      const ValueId output = graph.outputs.at(n).value;
      const ValueId dout =
          b.input(InputKind::batch, n == 0 ? "dout" : "dout_2", real_type(b.shape(output)));
      Shape axes;
      for (size_t i = 0; i < b.shape(output).size(); ++i) axes.push_back(static_cast<int64_t>(i));
      const ValueId sum = b.reduce_sum(b.mul(output, dout), axes);
      loss = loss == kNoValue ? sum : b.add(loss, sum);
    }
    b.output("loss", loss);
    return graph;
  }
};

TEST_P(GoldenEncoder, gives_what_transformers_gives) {
  const auto results = reference::interpret(graph(), inputs());
  const Graph built = graph();
  const Values& got = results.at(built.outputs.at(0).name);
  const Values& expected = fixture_.tensors.at("output");
  // Tokens of padding are no one's business.
  const auto& dout = fixture_.tensors.at("dout");
  Values ours, theirs;
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (dout[i] == 0) continue;
    ours.push_back(got[i]);
    theirs.push_back(expected[i]);
  }
  EXPECT_LE(distance(ours, theirs), kTolerance);
  const bool has_second = fixture_.tensors.contains("output_2");
  ASSERT_EQ(built.outputs.size(), has_second ? 3U : 2U);  // with the loss
  if (!has_second) return;
  EXPECT_LE(distance(results.at(built.outputs.at(1).name), fixture_.tensors.at("output_2")),
            kTolerance);
}

TEST_P(GoldenEncoder, has_the_gradients_of_transformers) {
  const auto results = reference::interpret(autodiff(graph()), inputs());
  for (const ParameterSpec& p : model_parameters(fixture_.spec)) {
    const Values* expected = nullptr;
    for (const auto& [name, values] : fixture_.tensors) {
      if (name.starts_with("g:") && parameter_name(fixture_.spec, name.substr(2)) == p.name)
        expected = &values;
    }
    if (p.is_statistic) continue;
    if (expected == nullptr) {  // transformers has none of what no output reads
      EXPECT_TRUE(p.name.ends_with("distillation_token") || p.name.ends_with("key.bias")) << p.name;
      continue;
    }
    // A bias of keys changes no score's order: its gradient is rounding alone.
    const double largest = std::abs(
        *std::ranges::max_element(*expected, {}, [](double value) { return std::abs(value); }));
    if (largest < 1e-5) continue;
    const bool is_small = fixture_.spec.kind == ModelKind::lstm_seq2seq;  // whose sums are short
    EXPECT_LE(distance(results.at(gradient_name(p.name)), in_memory(p, *expected)),
              is_small ? kTolerance : kGradientTolerance)
        << p.name;
  }
}

// A picture of the last row is another one: what other rows give, and the gradients of these, stay
// to the bit.
TEST_P(GoldenEncoder, shows_pictures_to_their_own_row_alone) {
  if (!fixture_.tensors.contains("i:pictures")) return;
  reference::Tensors before = inputs();
  const auto n_rows = static_cast<size_t>(fixture_.size.batch);
  const size_t n_last = before["dout"].size() / n_rows * (n_rows - 1);
  std::fill(before["dout"].begin() + static_cast<int64_t>(n_last), before["dout"].end(), 0.0);
  reference::Tensors after = before;
  Values& pictures = after["pictures"];
  for (size_t i = pictures.size() / n_rows * (n_rows - 1); i < pictures.size(); ++i)
    pictures[i] += 1;
  const Graph graph = autodiff(this->graph());
  const auto first = reference::interpret(graph, before),
             second = reference::interpret(graph, after);
  const Values& a = first.at("logits");
  const Values& b = second.at("logits");
  const auto end = static_cast<int64_t>(n_last);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + end, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + end, a.end(), b.begin() + end));
  for (const ParameterSpec& p : model_parameters(fixture_.spec))
    EXPECT_EQ(first.at(gradient_name(p.name)), second.at(gradient_name(p.name))) << p.name;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const DirectoryEntry& entry : posix_files().list(std::string(kFolder))) {
    if (entry.name.ends_with(".safetensors"))
      all.push_back(entry.name.substr(0, entry.name.size() - 12));
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Encoders, GoldenEncoder, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace octet::golden_encoders
