#include "backends/cpu/quantize/quantize.h"

#include "backends/cpu/elementwise/amax_sink.h"
#include "backends/cpu/elementwise/elementwise.h"
#include "backends/cpu/quantize/quantize_tiles.h"
#include "formats/quantize.h"

namespace octet::cpu {
namespace {

int64_t start_of(const RowSpan& span) {
  return span.row * span.cols + span.col;
}

struct MatrixSource {
  QuantizedMatrix x;
  int64_t group;  // of the result, or of x
  int64_t span_cols(int64_t want) const { return group_chunk(group, want); }
  In operator()(const RowSpan& span, float* buffer) const { return read_span(x, span, buffer); }
};

struct SumSource {
  AddQuantize args;
  int64_t span_cols(int64_t want) const { return group_chunk(args.out.group, want); }
  In operator()(const RowSpan& span, float* buffer) const {
    const int64_t at = start_of(span);
    add_span({offset(args.a, at), offset(args.b, at), offset(args.sum, at), buffer}, span.n);
    return {buffer, Dtype::f32};
  }
};

// The statistics of every row, where they are kept.
struct NormRows {
  const NormQuantize& args;
  float *mean, *rstd;

  void keep(int64_t row, const RowStatistics& statistics) const {
    mean[row] = statistics.mean;
    rstd[row] = statistics.rstd;
  }
  NormalizeSpan place(In x, const RowSpan& span) const {
    return {x, offset(args.weight, span.col), offset(args.bias, span.col), mean[span.row],
            rstd[span.row]};
  }
  In normalized(In x, const RowSpan& span, float* buffer) const {
    NormalizeSpan normalize = place(x, span);
    normalize.y = buffer;
    normalize_span(normalize, span.n);
    return {buffer, Dtype::f32};
  }
};

// Whole rows of the norm, with their statistics as they come.
struct NormRowSource {
  NormRows rows;
  int64_t cols;
  int64_t span_cols(int64_t) const { return std::max<int64_t>(1, cols); }
  In operator()(const RowSpan& span, float* buffer) const {
    const In x = read_span(rows.args.x, span, buffer);
    rows.keep(span.row, row_statistics(rows.args.kind, x, span.n, rows.args.eps));
    return rows.normalized(x, span, buffer);
  }
  bool fused(const RowSpan& span, float* buffer, const SpanOutput& output) const {
    const In x = read_span(rows.args.x, span, buffer);
    rows.keep(span.row, row_statistics(rows.args.kind, x, span.n, rows.args.eps));
    return fused_normalize(nullptr, span, rows.place(x, span), output);
  }
};

// Pieces of rows of the norm whose statistics are known.
struct NormSpanSource {
  NormRows rows;
  int64_t span_cols(int64_t want) const { return group_chunk(rows.args.x.group, want); }
  In operator()(const RowSpan& span, float* buffer) const {
    return rows.normalized(read_span(rows.args.x, span, buffer), span, buffer);
  }
  bool fused(const RowSpan& span, float*, const SpanOutput& output) const {
    return fused_normalize(&rows.args.x, span, rows.place({}, span), output);
  }
};

struct GeluSource {
  GeluKind kind;
  QuantizedMatrix x;
  int64_t span_cols(int64_t want) const { return group_chunk(x.group, want); }
  In operator()(const RowSpan& span, float* buffer) const {
    gelu_span(kind, read_span(x, span, buffer), {buffer, Dtype::f32}, span.n);
    return {buffer, Dtype::f32};
  }
};

struct GatedSource {
  QuantizedMatrix gate, up;
  int64_t buffer_floats;
  int64_t span_cols(int64_t want) const { return group_chunk(gate.group, want); }
  In operator()(const RowSpan& span, float* buffer) const {
    const In g = read_span(gate, span, buffer);
    gated_silu_span(g, read_span(up, span, buffer + buffer_floats), {buffer, Dtype::f32}, span.n);
    return {buffer, Dtype::f32};
  }
  bool fused(const RowSpan& span, float*, const SpanOutput& output) const {
    return fused_gated(gate, up, span, output);
  }
};

// A tensor's codes, and where the scale that they are made with comes from.
struct ScaledCodes {
  OwnScale own;
  TensorCodes out;
};

// The scale is given, or from the amax of what `source` makes.
template <typename Source>
TensorCodes with_scale(const ScaledCodes& codes, RowShape shape, const Source& source,
                       const TileScratch& scratch, ThreadPool& pool) {
  const OwnScale& own = codes.own;
  TensorCodes out = codes.out;
  if (own.scale == nullptr) return out;
  const float amax = amax_of_spans(source, shape, scratch, pool);
  *own.nonfinite = std::signbit(amax) ? 1 : 0;
  *own.scale = out.scale = tensor_scale(delayed_amax(own.history, std::abs(amax)), own.target);
  return out;
}

}  // namespace

float delayed_amax(const AmaxHistory& history, float amax) {
  const auto [values, next, n] = history;
  if (n == 0) return amax;
  const float largest = std::max(0.0f, *std::max_element(values, values + n));
  std::copy(values + 1, values + n, next);
  next[n - 1] = amax;
  return largest > 0 ? largest : amax;
}

float tensor_scale(float amax, float target) {
  Quantizer quantizer;
  quantizer.amax_target = target;
  return scale_from_amax(quantizer, amax);
}

int64_t quantize_scratch(RowShape shape, int64_t group, int n_threads) {
  return TileScratch(nullptr, shape, group).n_floats(n_threads);
}

void quantize(In x, const TensorCodes& out, RowShape shape, float* scratch, ThreadPool& pool) {
  if (out.transposed != nullptr) {
    return encode_panels(MatrixSource{{x}, 0}, out, shape, {scratch, shape, 0}, pool);
  }
  const Codec codec = simd_codec(out.format);
  for_blocks(pool, shape.rows * shape.cols, kBlockElems, [&](int64_t begin, int64_t end, int) {
    encode_span(codec, offset(x, begin), end - begin, {1.0f / out.scale, out.limit},
                out.rows + begin);
  });
}

void quantize_groups(In x, const GroupCodes& out, RowShape shape, float* scratch,
                     ThreadPool& pool) {
  encode_groups(MatrixSource{{x}, out.group}, out, shape, {scratch, shape, out.group}, pool);
}

void add_quantize(const AddQuantize& args, RowShape shape, float* scratch, ThreadPool& pool) {
  encode_groups(SumSource{args}, args.out, shape, {scratch, shape, args.out.group}, pool);
}

void dequantize(const QuantizedMatrix& codes, Out y, RowShape shape, float* scratch,
                ThreadPool& pool) {
  const TileScratch parts(scratch, shape, codes.group);
  if (codes.group > 0) {
    for_spans(MatrixSource{codes, codes.group}, shape, parts, pool,
              [&](const RowSpan& span, In x, int, int64_t) {
                convert_span(x, span.n, offset(y, start_of(span)));
              });
    return;
  }
  const Codec codec = simd_codec(codes.x.dtype);
  float scale;
  convert_span(codes.scales, 1, {&scale, Dtype::f32});
  const int64_t width = std::min(kSpanBuffers * parts.span(), kSpanCols);
  for_blocks(pool, shape.rows * shape.cols, kBlockElems,
             [&](int64_t begin, int64_t end, int thread) {
               for (int64_t i = begin; i < end; i += width) {
                 const int64_t n = std::min(width, end - i);
                 const auto* from = static_cast<const uint8_t*>(codes.x.data) + i;
                 codec.decode_f32(from, static_cast<size_t>(n), scale, parts.buffer(thread));
                 convert_span({parts.buffer(thread), Dtype::f32}, n, offset(y, i));
               }
             });
}

void norm_quantize(const NormQuantize& args, RowShape shape, float* scratch, ThreadPool& pool) {
  const TileScratch parts(scratch, shape, args.x.group);
  const NormRows rows{args, args.mean != nullptr ? args.mean : parts.mean_values(),
                      args.rstd != nullptr ? args.rstd : parts.row_values()};
  const NormRowSource whole{rows, shape.cols};
  const TensorCodes out = with_scale({args.own, args.out}, shape, whole, parts, pool);
  const bool known = args.own.scale != nullptr || args.known_rstd != nullptr;
  for (int64_t r = 0; r < shape.rows && args.known_rstd != nullptr; ++r)
    rows.keep(r, {args.known_mean == nullptr ? 0 : args.known_mean[r], args.known_rstd[r]});
  if (!known && out.transposed == nullptr) return encode_spans(whole, out, shape, parts, pool);
  if (!known) {
    for_rows(shape, pool, [&](int64_t r, int thread, int64_t) {
      const In x = read_span(args.x, {r, 0, shape.cols, shape.cols}, parts.buffer(thread));
      rows.keep(r, row_statistics(args.kind, x, shape.cols, args.eps));
    });
  }
  encode_tensor(NormSpanSource{rows}, out, shape, parts, pool);
}

void gated_silu_quantize(const GatedQuantize& args, RowShape shape, float* scratch,
                         ThreadPool& pool) {
  const TileScratch parts(scratch, shape, args.gate.group);
  const GatedSource source{args.gate, args.up, parts.span()};
  encode_tensor(source, with_scale({args.own, args.out}, shape, source, parts, pool), shape, parts,
                pool);
}

void gelu_quantize(const GeluQuantizer& args, RowShape shape, float* scratch, ThreadPool& pool) {
  const TileScratch parts(scratch, shape, args.x.group);
  const GeluSource source{args.kind, args.x};
  encode_tensor(source, with_scale({args.own, args.out}, shape, source, parts, pool), shape, parts,
                pool);
}

void gated_silu_on_codes(const GatedOnCodes& args, RowShape shape, float* scratch,
                         ThreadPool& pool) {
  const TileScratch parts(scratch, shape, args.gate.group);
  for_spans(MatrixSource{args.gate, args.gate.group}, shape, parts, pool,
            [&](const RowSpan& span, In gate, int thread, int64_t) {
              const In up = read_span(args.up, span, parts.buffer(thread) + parts.span());
              gated_silu_span(gate, up, offset(args.y, start_of(span)), span.n);
            });
}

void gated_silu_backward_on_codes(const GatedBackwardOnCodes& args, RowShape shape, float* scratch,
                                  ThreadPool& pool) {
  const TileScratch parts(scratch, shape, args.gate.group);
  const MatrixSource source{args.gate, args.gate.group};
  for_places(source, shape, pool, [&](const RowSpan& span, int thread, int64_t) {
    const int64_t at = start_of(span);
    GatedSiluBackward piece{
        {}, {}, offset(args.dy, at), offset(args.dgate, at), offset(args.dup, at)};
    if (!fused_gated_backward(args.gate, args.up, span, piece)) {
      float* const buffer = parts.buffer(thread);
      piece.gate = source(span, buffer);
      piece.up = read_span(args.up, span, buffer + parts.span());
      gated_silu_backward_span(piece, span.n);
    }
    if (args.amax == nullptr) return;
    args.amax->add(piece.dgate, span.n);
    args.amax->add(piece.dup, span.n);
  });
}

void gelu_on_codes(const GeluOnCodes& args, RowShape shape, float* scratch, ThreadPool& pool) {
  const TileScratch parts(scratch, shape, args.x.group);
  for_spans(MatrixSource{args.x, args.x.group}, shape, parts, pool,
            [&](const RowSpan& span, In x, int, int64_t) {
              const int64_t at = start_of(span);
              if (args.dy) {
                gelu_backward_span({args.kind, x, offset(args.dy, at), offset(args.y, at)}, span.n);
              } else {
                gelu_span(args.kind, x, offset(args.y, at), span.n);
              }
              if (args.amax != nullptr) args.amax->add(offset(args.y, at), span.n);
            });
}

}  // namespace octet::cpu
