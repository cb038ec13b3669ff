// A 784-1024-1024-10 MLP of the graph builder's primitives, trained by SGD on MNIST: in f32, in
// plain FP16, and in FP16 with propagated scales. Source of the task: Scalify's first example,
// whose weights start as N(0, 1); `width` times wider here, logits leave FP16's range.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/cpu/backend.h"
#include "backends/cpu/reference/reference.h"
#include "base/philox.h"
#include "compile/lower.h"
#include "data/byte_stream.h"
#include "passes/autodiff.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"
#include "passes/scalify/fold.h"
#include "passes/scalify/scalify.h"
#include "plan/plan.h"
#include "runtime/executor.h"

namespace octet::mnist {

constexpr int64_t kPixels = 784, kHidden = 1024, kDigits = 10, kBatch = 64;

struct Images {
  std::vector<float> pixels;  // in [0, 1]
  std::vector<int> labels;
  size_t size() const { return labels.size(); }
};

inline std::vector<unsigned char> unpacked(const std::string& path, size_t header) {
  const auto stream = open_stream(posix_files(), path);
  std::vector<unsigned char> bytes;
  std::vector<char> part(1 << 16);
  while (const size_t n = stream->read(part))
    bytes.insert(bytes.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(n));
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  return bytes;
}

inline std::optional<Images> read(const std::string& name) {
  const std::string folder = OCTET_TEST_DATA "/data/images/mnist/" + name;
  if (!posix_files().exists(folder + "-images-idx3-ubyte.gz")) return std::nullopt;
  Images images;
  for (const unsigned char x : unpacked(folder + "-images-idx3-ubyte.gz", 16))
    images.pixels.push_back(static_cast<float>(x) / 255.0f);
  for (const unsigned char x : unpacked(folder + "-labels-idx1-ubyte.gz", 8))
    images.labels.push_back(x);
  return images;
}

enum class Precision { f32, fp16, scaled_fp16 };

struct Layer {
  std::string name;
  int64_t in, out;
};
inline const Layer kLayers[] = {
    {"w1", kPixels, kHidden}, {"w2", kHidden, kHidden}, {"w3", kHidden, kDigits}};

// "logits" less their maximum, and the mean cross-entropy against one-hot labels.
inline Graph forward_graph() {
  Graph graph;
  Builder b(graph);
  ValueId x = b.input(InputKind::batch, "x", real_type({kBatch, kPixels}));
  const ValueId one_hot = b.input(InputKind::batch, "one_hot", real_type({kBatch, kDigits}));
  for (const Layer& layer : kLayers) {
    const ValueId w = b.input(InputKind::parameter, layer.name, real_type({layer.out, layer.in}));
    x = b.gemm(x, w, {.trans_b = true});
    if (layer.name != "w3") x = b.emit1(OpCode::maximum, NoAttrs{}, {x, b.fill_like(x, 0)});
  }
  const ValueId most = b.emit1(OpCode::stop_gradient, NoAttrs{}, {b.reduce_max(x, {1})});
  const ValueId logits = b.sub(x, b.broadcast_along(most, {kBatch, kDigits}, 1));
  const ValueId sum = b.reduce_sum(b.unary(OpCode::exp, logits), {1});
  const ValueId log_p =
      b.sub(logits, b.broadcast_along(b.unary(OpCode::log, sum), {kBatch, kDigits}, 1));
  b.output("loss", b.neg(b.reduce_sum(b.scaled(b.mul(log_p, one_hot), 1.0 / kBatch), {0, 1})));
  b.output("logits", logits);
  return graph;
}

// Weights of one step, with w' = w - lr g: in f32; in FP16, all of it; or in FP16 whose data carry
// the scale of the first weights, stored stochastically.
inline Graph training_graph(Precision precision, double width, double lr) {
  const Graph logical = simplify(autodiff(forward_graph()));
  const int fixed = static_cast<int>(std::log2(width));
  ScalifyOptions scales;
  for (const Layer& layer : kLayers) scales.input_scales[layer.name] = fixed;
  scales.input_rms = {{"x", -1.6}, {"one_hot", -1.7}};
  for (const Layer& layer : kLayers) scales.input_rms[layer.name] = fixed;
  const bool is_scaled = precision == Precision::scaled_fp16;
  const Dtype compute = precision == Precision::f32 ? Dtype::f32 : Dtype::fp16;
  Graph graph = is_scaled ? assign_types(simplify(fold_rescales(scalify(logical, scales).graph)),
                                         compute, Dtype::f32)
                          : assign_types(logical, compute, compute);
  Builder b(graph);
  constexpr Dtype kWide = Dtype::f32;
  ValueId attempt = kNoValue;
  if (is_scaled) attempt = b.input(InputKind::step_scalar, "attempt", {Dtype::u32, {}});
  for (const Layer& layer : kLayers) {
    const ValueId w = graph.find_input(layer.name)->value;
    const ValueId g = graph.find_output(gradient_name(layer.name))->value;
    if (!is_scaled) {
      const Shape shape = b.shape(w);
      const auto step = b.emit_typed(OpCode::rescale, NoAttrs{}, {g, b.fill({}, lr)}, {compute})[0];
      b.next(w, b.sub(w, step));
      continue;
    }
    const ValueId scale = b.fill({}, std::exp2(fixed));
    const ValueId wide = b.emit_typed(OpCode::rescale, NoAttrs{}, {w, scale}, {kWide})[0];
    const ValueId step = b.emit1(OpCode::rescale, NoAttrs{}, {g, b.fill({}, lr)});
    const StoreScaledAttrs attrs{.stream = static_cast<int64_t>(name_hash(layer.name + ":w"))};
    b.next(w, b.emit1(OpCode::store_scaled, attrs, {b.sub(wide, step), scale, attempt}));
  }
  std::erase_if(graph.outputs,
                [](const GraphOutput& output) { return is_gradient_name(output.name); });
  return graph;
}

struct Run {
  Precision precision = Precision::f32;
  double width = 2;
  int64_t seed = 0, steps = 0;
  double lr = 1e-3;
};

class Mlp {
 public:
  explicit Mlp(const Run& run)
      : run_(run), backend_(cpu::make_backend(2, cpu::detect_isa())), plan_(planned(run)) {
    arenas_.emplace(*backend_.device, plan_.arena_bytes);
    bound_.emplace(plan_, *backend_.catalogue, *arenas_);
    const double scale = run.precision == Precision::scaled_fp16 ? run.width : 1;
    for (const Layer& layer : kLayers) {
      const RandomStream random{.name = name_hash(layer.name),
                                .seed = static_cast<uint32_t>(run.seed)};
      std::vector<float> w(static_cast<size_t>(layer.in * layer.out));
      random.normals(w);
      std::vector<double> stored;
      for (const float x : w) stored.push_back(static_cast<double>(x) * run.width / scale);
      write(layer.name, stored);
    }
  }

  void train(const Images& images) {
    for (int64_t step = 0; step < run_.steps; ++step) {
      load(images, static_cast<size_t>(step * kBatch), true);
      if (run_.precision == Precision::scaled_fp16) {
        const auto attempt = static_cast<uint32_t>(step + 1);
        bound_->write_input("attempt", &attempt, sizeof(attempt));
      }
      bound_->run();
    }
  }

  // Share of right answers; the weights are changed by none of it.
  double accuracy(const Images& images) {
    std::map<std::string, std::vector<std::byte>> weights;
    for (const Layer& layer : kLayers) {
      auto& bytes = weights[layer.name];
      bytes.resize(static_cast<size_t>(type(layer.name).n_bytes()));
      std::memcpy(bytes.data(), bound_->input(layer.name), bytes.size());
    }
    int n_right = 0;
    for (size_t first = 0; first < images.size(); first += kBatch) {
      load(images, first, false);
      bound_->run();
      for (const auto& [name, bytes] : weights)
        bound_->write_input(name, bytes.data(), static_cast<int64_t>(bytes.size()));
      const GraphOutput& output = *plan_.graph.find_output("logits");
      std::vector<std::byte> raw(static_cast<size_t>(plan_.graph.type(output.value).n_bytes()));
      bound_->read_output("logits", raw.data(), static_cast<int64_t>(raw.size()));
      std::vector<double> logits(kBatch * kDigits);
      reference::load(plan_.graph.type(output.value).dtype, raw.data(), logits);
      for (size_t i = 0; i < kBatch && first + i < images.size(); ++i) {
        size_t best = 0;
        for (size_t k = 1; k < kDigits; ++k) {
          if (logits[i * kDigits + k] > logits[i * kDigits + best]) best = k;
        }
        n_right += static_cast<int>(best) == images.labels[first + i] ? 1 : 0;
      }
    }
    return n_right / static_cast<double>(images.size());
  }

 private:
  Plan planned(const Run& run) const {
    Graph graph = training_graph(run.precision, run.width, run.lr);
    graph.phase = Phase::lowered;
    graph = lower(graph, *backend_.catalogue);
    Layout layout;
    layout.add_inputs(graph);
    return make_plan(graph, layout, *backend_.catalogue);
  }

  const TensorType& type(const std::string& name) const {
    return plan_.graph.type(plan_.graph.find_input(name)->value);
  }
  void write(const std::string& name, const std::vector<double>& values) {
    std::vector<std::byte> bytes(static_cast<size_t>(type(name).n_bytes()));
    reference::store(type(name).dtype, values, bytes.data());
    bound_->write_input(name, bytes.data(), static_cast<int64_t>(bytes.size()));
  }

  // From this image on; shuffled, each epoch anew, where it is for training.
  void load(const Images& images, size_t first, bool is_shuffled) {
    std::vector<double> x, one_hot(kBatch * kDigits, 0);
    for (size_t i = 0; i < kBatch; ++i) {
      size_t at = (first + i) % images.size();
      if (is_shuffled) {
        const RandomStream random{.name = name_hash("order"),
                                  .seed = static_cast<uint32_t>(run_.seed)};
        at = random.bits(first + i) % images.size();
      }
      for (size_t k = 0; k < kPixels; ++k)
        x.push_back(static_cast<double>(images.pixels[at * kPixels + k]));
      one_hot[i * kDigits + static_cast<size_t>(images.labels[at])] = 1;
    }
    write("x", x);
    write("one_hot", one_hot);
  }

  Run run_;
  Backend backend_;
  Plan plan_;
  std::optional<Arenas> arenas_;
  std::optional<BoundPlan> bound_;
};

inline double test_accuracy(const Run& run, const Images& train, const Images& test) {
  Mlp mlp(run);
  mlp.train(train);
  return mlp.accuracy(test);
}

}  // namespace octet::mnist
