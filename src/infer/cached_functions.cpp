// Functions of a model over a KV cache, and whether a device has kernels for one.
#include <algorithm>

#include "base/error.h"
#include "infer/text_model.h"
#include "ir/builder.h"
#include "nn/shape.h"

namespace octet {
namespace {

// Tokens of each text at a time; of the fills also the larger ones whose rows the device can use.
constexpr int64_t kFillChunks[] = {16, 128}, kLargeChunks[] = {512, 2048}, kScoredChunk = 16;

BatchSize encode_size(int64_t n_entries, int64_t capacity) {
  return {.batch = n_entries, .seq = 1, .cache = capacity};
}

}  // namespace

bool runs_one_alone(const ModelSpec& spec, const TextModelOptions& options) {
  return options.runs_one_alone && options.n_entries > 1 && !model_def(spec.kind).sees_pictures &&
         !has_source(spec);
}

// True if there are kernels for a cache of this dtype.
bool serves_cache(const Catalogue& catalogue, const ModelSpec& spec, Dtype dtype) {
  Graph graph;
  graph.phase = Phase::lowered;
  Builder b(graph);
  constexpr int64_t kRows = 16;
  AttentionAttrs attrs{.kv_len = kRows, .heads = spec.heads, .kv_heads = spec.kv_heads};
  attrs.head_dim = std::max(spec.head_dim, spec.global_head_dim);
  attrs.window = spec.sliding_window;
  attrs.softcap = spec.attention_softcap;
  const auto input = [&](const char* name, Dtype type, Shape shape) {
    return b.input(InputKind::batch, name, {.dtype = type, .shape = std::move(shape)});
  };
  const int64_t width = spec.kv_heads * attrs.head_dim;
  const ValueId cache = input("cache", dtype, {kRows, width});
  const ValueId positions = input("positions", Dtype::i32, {1});
  const ValueId q = input("q", dtype, {1, spec.heads * attrs.head_dim});
  b.emit1(OpCode::cache_write, CacheAttrs{.capacity = kRows},
          {cache, input("x", dtype, {1, width}), positions});
  b.emit_typed(OpCode::attention, attrs, {q, cache, cache, kNoValue, positions},
               {dtype, Dtype::f32});
  return std::ranges::all_of(
      graph.nodes, [&](const Node& node) { return catalogue.choose(graph, node).has_value(); });
}

std::vector<FunctionKey> cached_functions(const ModelSpec& spec, const TextModelOptions& options,
                                          const Catalogue& catalogue) {
  std::vector<FunctionKey> keys;
  if (runs_one_alone(spec, options)) {
    CHECK(!options.picks);
    TextModelOptions one = options;
    one.n_entries = 1;
    keys = cached_functions(spec, one, catalogue);
  }
  const auto add = [&](std::string_view name, int64_t seq) {
    const FunctionKey key{name,
                          {.batch = options.n_entries,
                           .seq = std::min(seq, options.capacity),
                           .cache = options.capacity}};
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  };
  add(function::decode, 1);
  if (options.picks) add(function::pick, 1);
  if (options.logits == LogitsFor::scoring) add(function::decode, kScoredChunk);
  for (const int64_t size : kFillChunks) add(function::fill, size);
  for (const int64_t size : kLargeChunks) {
    if (options.n_entries * size <= catalogue.target().rows_to_fill) add(function::fill, size);
  }
  if (has_source(spec)) {
    const int64_t n = options.n_sources > 0 ? options.n_sources : options.n_entries;
    keys.push_back({function::encode, encode_size(n, options.capacity)});
  }
  return keys;
}

}  // namespace octet
