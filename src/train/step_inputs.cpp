#include "train/step_inputs.h"

#include <array>
#include <span>

#include "infer/tensor_streams.h"
#include "passes/precision/quantized_operands.h"

namespace octet {
namespace {

float inverse_of(int64_t n_labels) {
  return n_labels > 0 ? static_cast<float>(1.0 / static_cast<double>(n_labels)) : 0.0f;
}

}  // namespace

int64_t n_items(const ItemCounts& items, const LossTerm& loss) {
  return loss.counted == "samples" ? RowCounts::count_of(items, "rows") / loss.rows_per_sample
                                   : RowCounts::count_of(items, loss.counted);
}

std::vector<InputBytes> step_scalars(const ProgramOptions& options, const ItemCounts& items) {
  std::vector<InputBytes> scalars;
  for (const LossTerm& loss : options.losses)
    scalars.push_back(scalar_input(loss.inv_n, inverse_of(n_items(items, loss))));
  return scalars;
}

void add_dropout(const Graph& graph, const ProgramOptions& options, const RandomStream& step,
                 std::vector<InputBytes>& inputs) {
  if (options.lora.dropout == 0) return;
  const double share = options.lora.dropout;
  for (const GraphInput& input : graph.inputs) {
    if (!dropout_module(input.name)) continue;
    RandomStream random = step;
    random.name = name_hash(input.name);
    const TensorType& type = graph.type(input.value);
    std::vector<float> mask(static_cast<size_t>(type.n_elems()));
    const auto kept = static_cast<float>(1 / (1 - share));
    for (size_t i = 0; i < mask.size(); ++i)
      mask[i] = static_cast<double>(random.uniform(i)) < share ? 0.0f : kept;
    inputs.push_back({input.name, encode_weights(mask, type.dtype)});
  }
}

void add_rounding_draw(const Graph& graph, const RandomStream& step,
                       std::vector<InputBytes>& inputs) {
  if (graph.find_input(kRoundingDraw) == nullptr) return;
  const std::array<uint32_t, 3> draw = {step.seed, step.step, step.micro_batch};
  const auto bytes = std::as_bytes(std::span(draw));
  inputs.push_back({std::string(kRoundingDraw), {bytes.begin(), bytes.end()}});
}

}  // namespace octet
