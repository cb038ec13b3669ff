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

struct ActivationSource {
  RowLayer layer;
  CodedOperands from;
  int64_t buffer_floats;
  bool gated() const { return layer == RowLayer::gated_silu; }
  int64_t span_cols(int64_t want) const { return group_chunk(from.x.group, want); }
  // Values of the operands, in the buffer and behind it where they are codes.
  ActivationArgs read(const RowSpan& span, float* buffer) const {
    ActivationArgs act{.layer = layer, .x = read_span(from.x, span, buffer)};
    if (gated()) act.up = read_span(from.up, span, buffer + buffer_floats);
    return act;
  }
  In operator()(const RowSpan& span, float* buffer) const {
    ActivationArgs act = read(span, buffer);
    act.y = {buffer, Dtype::f32};
    activate_span(act, span.n);
    return act.y;
  }
  bool fused(const RowSpan& span, float*, const SpanOutput& output) const {
    return gated() && fused_gated(from.x, from.up, span, output);
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

void activation_quantize(const ActivationQuantize& args, RowShape shape, float* scratch,
                         ThreadPool& pool) {
  const TileScratch parts(scratch, shape, args.x.group);
  const ActivationSource source{args.layer, {args.x, args.up}, parts.span()};
  encode_tensor(source, with_scale({args.own, args.out}, shape, source, parts, pool), shape, parts,
                pool);
}

void activate_codes(const CodedOperands& from, const ActivationArgs& io, RowShape shape,
                    float* scratch, ThreadPool& pool) {
  const TileScratch parts(scratch, shape, from.x.group);
  const ActivationSource source{io.layer, from, parts.span()};
  for_places(source, shape, pool, [&](const RowSpan& span, int thread, int64_t) {
    ActivationArgs piece = source.read(span, parts.buffer(thread));
    piece.y = offset(io.y, start_of(span));
    activate_span(piece, span.n);
  });
}

void activate_codes_backward(const CodedOperands& from, const ActivationBackward& io,
                             RowShape shape, float* scratch, ThreadPool& pool) {
  const TileScratch parts(scratch, shape, from.x.group);
  const ActivationSource source{io.layer, from, parts.span()};
  for_places(source, shape, pool, [&](const RowSpan& span, int thread, int64_t) {
    const int64_t at = start_of(span);
    ActivationBackward piece{.layer = io.layer,
                             .dy = offset(io.dy, at),
                             .dx = offset(io.dx, at),
                             .dup = offset(io.dup, at),
                             .amax = io.amax};
    if (!source.gated() || !fused_gated_backward(from.x, from.up, span, piece)) {
      const ActivationArgs values = source.read(span, parts.buffer(thread));
      piece.x = values.x, piece.up = values.up;
      activate_backward_span(piece, span.n);
    }
    piece.find_amax(0, span.n);
  });
}

}  // namespace octet::cpu
