#include <algorithm>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

// Strides of one operand of a dot along the batch, free and contracted axes, as three shapes.
struct Walk {
  Shape batch, free, contract;                       // sizes
  Shape batch_stride, free_stride, contract_stride;  // in elements
};

Walk walk(const RefTensor& t, const Shape& batch, const Shape& contract) {
  Walk w;
  const Shape strides = row_major_strides(t.type.shape);
  Shape taken = batch;
  taken.insert(taken.end(), contract.begin(), contract.end());
  const auto put = [&](int64_t axis, Shape& sizes, Shape& steps) {
    sizes.push_back(t.type.shape[size(axis)]);
    steps.push_back(strides[size(axis)]);
  };
  for (const int64_t axis : batch) put(axis, w.batch, w.batch_stride);
  for (const int64_t axis : contract) put(axis, w.contract, w.contract_stride);
  for (int64_t axis = 0; axis < static_cast<int64_t>(t.type.shape.size()); ++axis) {
    const bool free = std::find(taken.begin(), taken.end(), axis) == taken.end();
    if (free) put(axis, w.free, w.free_stride);
  }
  return w;
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
  const Walk a = walk(call.in[0], attrs.batch_a, attrs.contract_a);
  const Walk b = walk(call.in[1], attrs.batch_b, attrs.contract_b);
  size_t to = 0;
  for (Index batch(a.batch); batch.more(); batch.next()) {
    const size_t a_batch = flat_of(a.batch_stride, batch.at());
    const size_t b_batch = flat_of(b.batch_stride, batch.at());
    for (Index i(a.free); i.more(); i.next()) {
      const size_t a_free = a_batch + flat_of(a.free_stride, i.at());
      for (Index j(b.free); j.more(); j.next()) {
        const size_t b_free = b_batch + flat_of(b.free_stride, j.at());
        double sum = 0;
        for (Index k(a.contract); k.more(); k.next()) {
          sum += call.in[0].data[a_free + flat_of(a.contract_stride, k.at())] *
                 call.in[1].data[b_free + flat_of(b.contract_stride, k.at())];
        }
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

void batched_gemm(const RefCall& call) {
  using S = BatchedGemm;
  const auto& attrs = std::get<BatchedGemmAttrs>(call.attrs);
  const Shape& a = call.in[S::a].type.shape;
  const size_t rows = dim(call.out[0], 1), cols = dim(call.out[0], 2);
  const size_t depth = size(a[attrs.trans_a ? 1 : 2]);
  const size_t a_row = attrs.trans_a ? 1 : depth, a_deep = attrs.trans_a ? rows : 1;
  const size_t b_deep = attrs.trans_b ? 1 : cols, b_col = attrs.trans_b ? depth : 1;
  const auto c = optional(call.in, S::c);
  for (size_t at = 0; at < call.out[0].data.size(); ++at) {
    const size_t batch = at / (rows * cols), i = at / cols % rows, j = at % cols;
    const auto x = call.in[S::a].data.subspan(batch * rows * depth, rows * depth);
    const auto z = call.in[S::b].data.subspan(batch * cols * depth, cols * depth);
    double sum = 0;
    for (size_t k = 0; k < depth; ++k) sum += x[i * a_row + k * a_deep] * z[k * b_deep + j * b_col];
    call.out[0].data[at] = attrs.factor * sum + (c.empty() ? 0 : c[at]);
  }
}

void bias_add(const RefCall& call) {
  const size_t cols = dim(call.in[0], 1);
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    call.out[0].data[i] = call.in[0].data[i] + call.in[1].data[i % cols];
  }
}

void column_sum(const RefCall& call) {
  const size_t cols = dim(call.in[0], 1);
  std::fill(call.out[0].data.begin(), call.out[0].data.end(), 0.0);
  for (size_t i = 0; i < call.in[0].data.size(); ++i)
    call.out[0].data[i % cols] += call.in[0].data[i];
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

void embedding(const RefCall& call) {
  gather(call);
}
void embedding_grad(const RefCall& call) {
  scatter_add(call);
}

}  // namespace octet::reference
