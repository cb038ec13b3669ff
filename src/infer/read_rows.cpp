#include "infer/read_rows.h"

#include "base/error.h"
#include "formats/arrays.h"

namespace octet {

std::vector<float> read_rows(Device& device, const BoundPlan& plan, std::string_view output,
                             OutputRows rows) {
  const auto [first, n] = rows;
  const Graph& graph = plan.plan().graph;
  const TensorType& type = graph.type(graph.find_output(output)->value);
  CHECK(first >= 0 && n >= 0 && first + n <= type.shape.at(0));
  CHECK(is_high_precision(type.dtype));
  const int64_t row_bytes = bytes_of(type.dtype, type.shape.at(1));
  const std::byte* from = plan.output(output) + first * row_bytes;
  std::vector<float> values(static_cast<size_t>(n * type.shape.at(1)));
  if (type.dtype == Dtype::f32) {
    device.copy_out(values.data(), from, n * row_bytes);
    return values;
  }
  std::vector<std::byte> halves(static_cast<size_t>(n * row_bytes));
  device.copy_out(halves.data(), from, n * row_bytes);
  decode_values(type.dtype, halves, values);
  return values;
}

}  // namespace octet
