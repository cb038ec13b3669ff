// Functions over KV caches.
#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "compile/compose.h"
#include "ir/caches.h"
#include "passes/rewrite/rewrite.h"
#include "passes/rewrite/simplify.h"

namespace octet {
namespace {

// Without the batch's arrays that no node reads: the source's where its caches are read, the text's
// where they are written.
Graph without_unread_inputs(const Graph& graph) {
  const auto readers = uses(graph);
  Rewriter rewriter(graph, [&](const GraphInput& input) {
    return input.kind != InputKind::batch || !readers[input.value].empty();
  });
  for (const Node& node : graph.nodes) rewriter.copy(node);
  return rewriter.finish();
}

// Attention over KV caches in the place of keys and values that a call makes.
class CacheWriter {
 public:
  CacheWriter(const Graph& typed, const BatchSize& size)
      : typed_(typed), size_(size), rewriter_(typed), b_(rewriter_.builder()) {}

  Graph with_caches(FixedKeys fixed) {
    if (const GraphInput* positions = typed_.find_input("positions"))
      positions_ = rewriter_.map(positions->value);
    for (const Node& node : typed_.nodes) {
      const auto* const attention = std::get_if<AttentionAttrs>(&node.attrs);
      if (attention == nullptr || attention->keys == AttentionKeys::own) {
        rewriter_.copy(node);
      } else if (attention->keys == AttentionKeys::fixed) {
        if (fixed == FixedKeys::written) write_fixed(node);
        read_fixed(node);
      } else {
        append(node, *attention);
      }
    }
    // finish() appends the outputs of the typed graph behind the caches' next values.
    Graph result = rewriter_.finish();
    if (has_bias_) result = remove_dead(std::move(result));
    return has_fixed_ ? without_unread_inputs(remove_dead(std::move(result))) : result;
  }

  Graph source_alone() {
    for (const Node& node : typed_.nodes) {
      rewriter_.copy(node);
      const auto* const attention = std::get_if<AttentionAttrs>(&node.attrs);
      if (attention != nullptr && attention->keys == AttentionKeys::fixed) write_fixed(node);
    }
    if (!has_fixed_) {
      throw Error(ErrorCode::invalid_argument,
                  "[{}] expected a model with attention to a source, got one without", typed_.name);
    }
    return without_unread_inputs(remove_dead(rewriter_.finish_without_outputs()));
  }

 private:
  ValueId cache(const Node& node, SlotId slot, std::string_view what, int64_t rows) {
    const TensorType& type = typed_.type(node.in(slot));
    return b_.state(StateUse::kv_cache, cache_owner(node.tag.layer, what, size_.batch, rows),
                    {.dtype = type.dtype, .shape = {size_.batch * rows, type.shape[1]}});
  }

  ValueId appended(const Node& node, SlotId slot, std::string_view what) {
    const ValueId x = rewriter_.map(node.in(slot)), held = cache(node, slot, what, size_.cache);
    const ValueId next =
        b_.emit1(OpCode::cache_write, CacheAttrs{.batch = size_.batch, .capacity = size_.cache},
                 {held, x, positions_});
    b_.next(held, next);
    return next;
  }

  void append(const Node& node, AttentionAttrs attrs) {
    if (attrs.mask != AttentionMask::causal || node.in(Attention::key_ends) != kNoValue) {
      throw Error(ErrorCode::invalid_argument,
                  "[{}] expected a cache of the keys of causal attention without ends of keys, got "
                  "{} keys of a {} mask",
                  typed_.name, enum_name(attrs.keys), enum_name(attrs.mask));
    }
    CHECK(positions_ != kNoValue);
    b_.tag = node.tag;
    attrs.kv_len = size_.cache;
    const ValueId k = appended(node, Attention::k, "k"), v = appended(node, Attention::v, "v");
    const ValueId q = rewriter_.map(node.in(Attention::q));
    ValueIds operands = {q, k, v, kNoValue, positions_};
    if (node.in(Attention::bias) != kNoValue)
      operands = {q, k, v, kNoValue, positions_, kNoValue, bias(node)};
    rewriter_.replace(node, OpCode::attention, attrs, operands);
  }

  // A call's bias is of its own keys, the first ones of a bias of all places of the cache.
  ValueId bias(const Node& node) {
    has_bias_ = true;
    ValueId value = node.in(Attention::bias);
    if (const Node* const cut = typed_.producer(value, OpCode::slice)) {
      const auto& slice = std::get<SliceAttrs>(cut->attrs);
      const auto starts = std::ranges::count(slice.start, 0),
                 steps = std::ranges::count(slice.stride, 1);
      if (starts == 4 && steps == 4) value = cut->in(Unary::x);
    }
    Shape shape = typed_.type(node.in(Attention::bias)).shape;
    shape[3] = size_.cache;
    if (typed_.type(value).shape != shape) {
      throw Error(ErrorCode::invalid_argument,
                  "[{}] expected a bias {} of all places of the cache, of which a call's keys have "
                  "a slice, got {}",
                  typed_.name, to_string(shape), to_string(typed_.type(value).shape));
    }
    return rewriter_.map(value);
  }

  ValueId fixed(const Node& node, SlotId slot) {
    const int64_t rows = std::get<AttentionAttrs>(node.attrs).kv_len;
    return cache(node, slot, slot == Attention::k ? "ck" : "cv", rows);
  }

  void write_fixed(const Node& node) {
    has_fixed_ = true;
    b_.tag = node.tag;
    for (const SlotId slot : {SlotId{Attention::k}, SlotId{Attention::v}}) {
      const ValueId x = rewriter_.map(node.in(slot));
      // One value in two caches is copied.
      const bool is_new = written_.insert(x).second && b_.graph().producer(x) != nullptr;
      b_.next(fixed(node, slot), is_new ? x : b_.unary(OpCode::stop_gradient, x));
    }
  }

  void read_fixed(const Node& node) {
    has_fixed_ = true;
    b_.tag = node.tag;
    ValueIds operands = rewriter_.map(node.operands);
    for (const SlotId slot : {SlotId{Attention::k}, SlotId{Attention::v}}) {
      // Keys and values that this call writes are those that it reads.
      if (!written_.contains(operands[slot])) operands[slot] = fixed(node, slot);
    }
    rewriter_.replace(node, OpCode::attention, node.attrs, operands);
  }

  const Graph& typed_;
  const BatchSize& size_;
  Rewriter rewriter_;
  Builder& b_;
  ValueId positions_ = kNoValue;
  bool has_fixed_ = false, has_bias_ = false;
  std::set<ValueId> written_;
};

}  // namespace

Graph with_cache(const Graph& typed, const BatchSize& size, FixedKeys fixed) {
  if (size.cache < size.seq) {
    throw Error(ErrorCode::invalid_argument,
                "[{}] expected a cache of at least {} positions, got {}", typed.name, size.seq,
                size.cache);
  }
  return CacheWriter(typed, size).with_caches(fixed);
}

Graph encode_source(const Graph& typed, const BatchSize& size) {
  return CacheWriter(typed, size).source_alone();
}

}  // namespace octet
