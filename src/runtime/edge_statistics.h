// Operands of the GEMMs and the updates of a step: how large they are, and what their format does
// to them.
//
// An EdgeWatch sees every launch through a StepObserver (runtime/executor.h) and reads, before a
// GEMM or an update runs, its operands from memory; a plan that is not watched is the same plan,
// launch for launch, and pays nothing. Operands that are quantized are counted by what they decode
// to.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "runtime/executor.h"

namespace octet {

// The range of log2 RMS in which a normal keeps its full signal-to-noise ratio (docs/scalify.md).
struct FormatWindow {
  double low = 0, high = 0;
  double middle() const { return (low + high) / 2; }
};
// Codes that were flushed to zero are a reason to rescale, or none: where a run goes on they come
// and go with the data, and an edge is not to move at each look.
enum class FlushedCodes : uint8_t { counted, ignored };

// A scale made from the maximum brings data that have no tails above the window, and loses none.
inline constexpr double kSaturatedGradients = 1e-3;

// Nothing for formats with the exponents of f32.
std::optional<FormatWindow> format_window(Dtype dtype);

struct EdgeStatistics {
  // "layers.3.q_proj.x" (.w, .dy; .y of a result in codes), "grad:model.norm.weight" (m:, v:)
  std::string edge = {};
  // The first linear that reads the same input, "layers.3.q_proj": those of one group share a scale
  // for each kind of operand.
  std::string group = {};
  Tag tag = {};
  Dtype dtype = Dtype::f32;
  int64_t n = 0;             // finite elements
  double rms = 0, amax = 0;  // of the values
  double zeros = 0;      // share of elements that are 0: of quantized data, what was flushed too
  double saturated = 0;  // share at the format's largest magnitude
  double nonfinite = 0;  // share of NaN and Inf
  double scale = 1;      // values are data times this
  std::optional<double> snr = {};          // dB, where the quantizer's operand was at hand
  std::optional<double> source_amax = {};  // of that operand

  bool is_forward() const;  // an input, a weight or a result, no gradient
  double drift() const;     // log2 of the data's RMS; -inf where all are 0
  // The power of two by which the data would come back to the middle of the window; 0 inside it,
  // and above it where next to nothing saturates. Of data with infinities half the window down.
  int rescale() const;
  // The power of two by which the maximum, as far as it is known, is between a quarter and half of
  // the range, where codes saturate (any of the forward pass, more than kSaturatedGradients of a
  // gradient) or are flushed to zero; else rescale(), which never takes the maximum above that.
  // Where a run begins (FlushedCodes::counted) inputs and results are raised to an eighth at most:
  // they grow several-fold in the first steps, as weights do not.
  int rescale_of_maximum(FlushedCodes flushed = FlushedCodes::counted) const;
  // The largest power of two, at least 1, by which codes may grow with that maximum in mind.
  int room() const;
};

// The name of a linear's GEMM: "layers.3.q_proj".
std::string gemm_name(const Node& gemm);
// Statistics of n elements of this dtype, before `scale`.
EdgeStatistics count_edge(Dtype dtype, std::span<const std::byte> bytes, ThreadPool& pool);

// all: with the signal-to-noise ratio of quantizers, the operands of GEMMs outside of layers, and
// what updates read. scales: only what rescales of edges are decided by, many times as fast.
enum class EdgeLooks : uint8_t { all, scales };

class EdgeWatch {
 public:
  explicit EdgeWatch(Arenas& arenas, EdgeLooks looks = EdgeLooks::all)
      : arenas_(arenas), looks_(looks), pool_(arenas.device().info().n_threads) {}

  // Refers to this object.
  StepObserver observer();
  // In the order in which they were met; each once.
  std::vector<EdgeStatistics> take() { return std::move(edges_); }

 private:
  struct Loss {
    double snr = 0, amax = 0;
    bool has_noise = false;
  };
  void look(const Plan& plan, const PlanStep& step, bool before);
  void look_at_operand(const Plan& plan, const Node& gemm, size_t factor, size_t scale,
                       std::string_view what);
  void look_at_quantizer(const Plan& plan, const Node& quantizer);
  void look_at_result(const Plan& plan, const Node& gemm, ValueId codes, ValueId scale);
  void look_at_layer(const Plan& plan, const Node& layer);
  void look_at_update(const Plan& plan, const Node& node, const GraphInput& parameter);
  Loss loss_of(const Plan& plan, const Node& quantizer);
  EdgeStatistics count_codes(const Plan& plan, ValueId codes, ValueId scale);
  std::optional<double> maximum_of_weight(const Plan& plan, ValueId codes);
  void add(EdgeStatistics edge, std::string name, const Tag& tag);
  float scalar(const Plan& plan, ValueId id);
  // Until the next call.
  std::span<const std::byte> bytes(const Plan& plan, ValueId id);

  Arenas& arenas_;
  EdgeLooks looks_;
  ThreadPool pool_;
  std::unique_ptr<DeviceMemory> copy_;  // of a value, in memory that is kept
  std::set<std::string> seen_;
  std::map<ValueId, Loss> losses_;             // by codes of the plan that runs
  std::map<ValueId, std::string> readers_;     // the first linear that reads an input, likewise
  std::map<std::string, std::string> groups_;  // by linear
  std::vector<EdgeStatistics> edges_;
};

}  // namespace octet
