#include <algorithm>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

// Offsets of the elements along these axes, in order.
std::vector<size_t> offsets(const RefTensor& t, const Shape& axes) {
  const Shape strides = row_major_strides(t.type.shape);
  Shape extent, steps;
  for (const int64_t axis : axes) {
    extent.push_back(t.type.shape[size(axis)]);
    steps.push_back(strides[size(axis)]);
  }
  std::vector<size_t> result;
  walk(extent, steps, 0, [&](size_t, size_t at) { result.push_back(at); });
  return result;
}

// Offsets along all other axes.
std::vector<size_t> free_offsets(const RefTensor& t, const Shape& batch, const Shape& contract) {
  Shape axes;
  for (int64_t axis = 0; axis < static_cast<int64_t>(t.type.shape.size()); ++axis) {
    if (std::ranges::count(batch, axis) + std::ranges::count(contract, axis) == 0)
      axes.push_back(axis);
  }
  return offsets(t, axes);
}

// Row `index` of a table, or nothing where it lies outside.
bool inside(double index, size_t rows) {
  return index >= 0 && index < static_cast<double>(rows);
}

// The scale of an operand that is codes, 1 for another.
double scale_of(const RefCall& call, size_t i) {
  const auto scale = optional(call.in, i);
  return scale.empty() ? 1 : scale[0];
}

// A factor times the scales of its blocks; empty where it has one scale, or none.
std::vector<double> by_blocks(const RefCall& call, size_t factor) {
  const RefTensor& x = call.in[factor];
  if (scale_tile(x.type).is_all()) return {};
  std::vector<double> result(x.data.begin(), x.data.end());
  for (size_t i = 0; i < result.size(); ++i)
    result[i] *= call.in[factor + 3].data[scale_index(x.type, i)];
  return result;
}

}  // namespace

void dot(const RefCall& call) {
  const auto& attrs = std::get<DotAttrs>(call.attrs);
  const RefTensor &a = call.in[0], &b = call.in[1];
  const auto a_batch = offsets(a, attrs.batch_a), b_batch = offsets(b, attrs.batch_b);
  const auto a_deep = offsets(a, attrs.contract_a), b_deep = offsets(b, attrs.contract_b);
  const auto a_free = free_offsets(a, attrs.batch_a, attrs.contract_a);
  const auto b_free = free_offsets(b, attrs.batch_b, attrs.contract_b);
  size_t to = 0;
  for (size_t batch = 0; batch < a_batch.size(); ++batch) {
    for (const size_t i : a_free) {
      for (const size_t j : b_free) {
        const size_t x = a_batch[batch] + i, z = b_batch[batch] + j;
        double sum = 0;
        for (size_t k = 0; k < a_deep.size(); ++k)
          sum += a.data[x + a_deep[k]] * b.data[z + b_deep[k]];
        call.out[0].data[to++] = sum;
      }
    }
  }
}

void gemm(const RefCall& call) {
  const auto& attrs = std::get<GemmAttrs>(call.attrs);
  const RefTensor& y = call.out[0];
  const size_t rows = dim(y, 0), cols = dim(y, 1);
  const size_t depth = size(read_shape(call.in[0].type, attrs.trans_a)[1]);
  const bool trans_a = reads_transposed(call.in[0].type, attrs.trans_a);
  const bool trans_b = reads_transposed(call.in[1].type, attrs.trans_b);
  const size_t a_row = trans_a ? 1 : depth, a_deep = trans_a ? rows : 1;
  const size_t b_deep = trans_b ? 1 : cols, b_col = trans_b ? depth : 1;
  const std::vector<double> a_blocks = by_blocks(call, 0);
  const std::vector<double> b_blocks = by_blocks(call, 1);
  const auto either = [](const std::vector<double>& blocks, std::span<const double> plain) {
    return blocks.empty() ? plain : std::span<const double>(blocks);
  };
  const auto a = either(a_blocks, call.in[0].data), b = either(b_blocks, call.in[1].data);
  const auto c = optional(call.in, Gemm::c);
  const size_t c_row = !c.empty() && is_bias_row(call.in[Gemm::c].type) ? 0 : cols;
  const double scale =
      (a_blocks.empty() ? scale_of(call, 3) : 1) * (b_blocks.empty() ? scale_of(call, 4) : 1);
  const bool stores_codes = !optional(call.in, Gemm::scale_y).empty();
  const double scale_y = scale_of(call, Gemm::scale_y);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (size_t k = 0; k < depth; ++k)
        sum += a[i * a_row + k * a_deep] * b[k * b_deep + j * b_col];
      const double sum_with_c = sum * scale + (c.empty() ? 0 : c[i * c_row + j]);
      y.data[i * cols + j] =
          stores_codes ? round_to(Dtype::e4m3, sum_with_c / scale_y) : sum_with_c;
    }
  }
}

void gather(const RefCall& call) {
  const size_t rows = dim(call.in[0], 0);
  const size_t width = rows == 0 ? 0 : call.in[0].data.size() / rows;
  std::fill(call.out[0].data.begin(), call.out[0].data.end(), 0.0);
  for (size_t i = 0; i < call.in[1].data.size(); ++i) {
    const double index = call.in[1].data[i];
    if (!inside(index, rows)) continue;
    const auto from = call.in[0].data.subspan(static_cast<size_t>(index) * width, width);
    std::copy(from.begin(), from.end(), call.out[0].data.begin() + static_cast<int64_t>(i * width));
  }
}

void scatter_add(const RefCall& call) {
  const size_t rows = dim(call.out[0], 0);
  const size_t width = rows == 0 ? 0 : call.out[0].data.size() / rows;
  std::fill(call.out[0].data.begin(), call.out[0].data.end(), 0.0);
  for (size_t i = 0; i < call.in[1].data.size(); ++i) {
    const double index = call.in[1].data[i];
    if (!inside(index, rows)) continue;
    const size_t to = static_cast<size_t>(index) * width;
    for (size_t k = 0; k < width; ++k) call.out[0].data[to + k] += call.in[0].data[i * width + k];
  }
}

}  // namespace octet::reference
