#include "backends/cpu/quantize/quantize_layers.h"

#include "backends/cpu/elementwise/amax_sink.h"
#include "backends/cpu/quantize/quantize_tiles.h"

namespace octet::cpu {
namespace {

struct StoredSource {
  QuantizedMatrix x;
  int64_t span_cols(int64_t want) const { return group_chunk(x.group, want); }
  In operator()(const RowSpan& span, float* buffer) const { return read_span(x, span, buffer); }
};

int64_t start_of(const RowSpan& span) {
  return span.row * span.cols + span.col;
}

}  // namespace

void gated_silu_on_codes(const GatedOnCodes& args, RowShape shape, float* scratch,
                         ThreadPool& pool) {
  const TileScratch parts(scratch, shape, args.gate.group);
  for_spans(StoredSource{args.gate}, shape, parts, pool,
            [&](const RowSpan& span, In gate, int thread, int64_t) {
              const In up = read_span(args.up, span, parts.buffer(thread) + parts.span());
              gated_silu_span(gate, up, offset(args.y, start_of(span)), span.n);
            });
}

void gated_silu_backward_on_codes(const GatedBackwardOnCodes& args, RowShape shape, float* scratch,
                                  ThreadPool& pool) {
  const TileScratch parts(scratch, shape, args.gate.group);
  const StoredSource source{args.gate};
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
  for_spans(StoredSource{args.x}, shape, parts, pool, [&](const RowSpan& span, In x, int, int64_t) {
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
