#include "ir/parse.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <type_traits>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/text_cursor.h"

namespace octet {
namespace {

class Parser : TextCursor {
 public:
  Parser(std::string_view text, const std::string& file, Graph& graph)
      : TextCursor(text, file), graph_(graph) {}

  // A node behind those that there are; values are called by their ids.
  void append() {
    for (ValueId id = 0; id < std::ssize(graph_.values); ++id) values_.emplace(id, id);
    statement();
    skip();
    if (pos_ < text_.size()) fail("one node");
  }

  void parse() {
    keyword("graph");
    graph_.name = string();
    keyword("phase");
    graph_.phase = enumerator<Phase>();
    skip();
    while (pos_ < text_.size()) {
      if (peek() == '%') {
        statement();
      } else {
        output();
      }
      skip();
    }
  }

 private:
  // A value to be defined, where its name stands, and the slot that it is, if that is said.
  struct Name {
    int64_t number = 0;
    size_t pos = 0;
    std::string_view slot = {};
    size_t slot_pos = 0;
  };

  Dtype dtype(std::string_view expected) {
    const std::string_view name = word();
    const auto found = dtype_from_name(name);
    if (!found) fail(expected);
    pos_ += name.size();
    return *found;
  }
  TensorType type() {
    TensorType result{
        .dtype = dtype("a dtype"), .shape = {}, .granularity = granularity(), .layout = layout()};
    const size_t start = pos_;
    result.shape = tensor_shape();
    if (!result.layout.transposed) return result;
    if (result.shape.size() != 2) fail_at(start, "a matrix, which lies transposed");
    check_dims(result.stored_shape(), start);
    return result;
  }
  // Behind that.
  DataLayout layout() {
    if (pos_ + 1 >= text_.size() || text_.substr(pos_, 2) != "^T") return {};
    pos_ += 2;
    DataLayout result{.transposed = true};
    if (pos_ < text_.size() && text_[pos_] != '[') result.pad = number<int64_t>();
    if (result.pad < 1 || result.pad > (int64_t{1} << 40)) fail("a pad from 1 to 2^40");
    return result;
  }
  // Directly behind the dtype.
  Granularity granularity() {
    if (pos_ >= text_.size() || text_[pos_] != ':') return {};
    ++pos_;
    const std::string_view name = word();
    auto found = find_granularity(name);
    if (!found) fail("tensor, row, 1xG, Gx1, BxB or runN");
    pos_ += name.size();
    if (accept('/')) found->scale = dtype("the dtype of scales");
    return *found;
  }
  Shape tensor_shape() {
    const size_t start = pos_;
    Shape result = shape();
    check_dims(result, start);
    return result;
  }
  void check_dims(const Shape& dims, size_t start) {
    int64_t n = 1;
    for (const int64_t dim : dims) {
      if (dim < 0 || dim > (int64_t{1} << 40)) fail_at(start, "dimensions from 0 to 2^40");
      if (__builtin_mul_overflow(n, dim, &n) || n > (int64_t{1} << 48))
        fail_at(start, "at most 2^48 elements");
    }
  }
  // A value that must exist.
  ValueId value() {
    skip();
    const size_t start = pos_;
    expect('%');
    const auto it = values_.find(number<int64_t>());
    if (it == values_.end()) fail_at(start, "a value defined above");
    return it->second;
  }
  ValueId define(const Name& name, TensorType value_type, NodeId producer, int index) {
    const auto id = static_cast<ValueId>(graph_.values.size());
    if (!values_.emplace(name.number, id).second)
      fail_at(name.pos, "each value to be defined once");
    graph_.values.push_back(
        {.type = std::move(value_type), .producer = producer, .result_index = index});
    return id;
  }

  void statement() {
    std::vector<Name> names;
    do {
      skip();
      const size_t start = pos_;
      expect('%');
      names.push_back({number<int64_t>(), start});
      if (!accept(':')) continue;
      skip();
      names.back().slot_pos = pos_;
      names.back().slot = word();
      pos_ += names.back().slot.size();
      if (names.back().slot.empty()) fail("the name of a result");
    } while (accept(','));
    expect('=');
    if (accept_keyword("input")) {
      if (names.size() != 1) fail("one value for an input");
      if (!names[0].slot.empty())
        fail_at(names[0].slot_pos, "an input without the name of a result");
      const auto kind = enumerator<InputKind>();
      std::string name = string();
      expect(':');
      const ValueId id = define(names[0], type(), kNoNode, 0);
      graph_.inputs.push_back(graph_input(id, kind, std::move(name), graph_.type(id).dtype));
      if (!accept_keyword("shard")) return;
      keyword("of");
      graph_.inputs.back().whole = tensor_shape();
      return;
    }
    const std::string_view op_name = word();
    const OpDef* def = find_op(op_name);
    if (def == nullptr) fail("an op");
    pos_ += op_name.size();
    Node node{.op = def->code, .attrs = def->attrs(), .operands = {}, .results = {}, .tag = {}};
    const size_t start = pos_;
    operands(node);
    attributes(node);
    if (peek() != ':') return infer(std::move(node), names, start);
    expect(':');
    for (size_t i = 0; i < names.size(); ++i) {
      if (i > 0) expect(',');
      const size_t slot = place(node.results, def->results, names[i].slot,
                                names[i].slot.empty() ? names[i].pos : names[i].slot_pos);
      node.results[slot] = define(names[i], type(), static_cast<NodeId>(graph_.nodes.size()),
                                  static_cast<int>(slot));
    }
    tag(node.tag);
    graph_.nodes.push_back(std::move(node));
  }
  // A node whose results' types are not said.
  void infer(Node node, const std::vector<Name>& names, size_t start) {
    tag(node.tag);
    Builder builder(graph_);
    builder.tag = node.tag;
    ValueIds results;
    try {
      results = builder.emit(node.op, std::move(node.attrs), std::move(node.operands));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      throw Error(ErrorCode::invalid_argument, "{}: {}", place_of(start), error.what());
    }
    ValueIds named;
    for (const Name& name : names) {
      const size_t pos = name.slot.empty() ? name.pos : name.slot_pos;
      const size_t slot = place(named, op_def(node.op).results, name.slot, pos);
      if (slot >= results.size() || results[slot] == kNoValue)
        fail_at(pos, "a result that the op has");
      named[slot] = results[slot];
      if (!values_.emplace(name.number, results[slot]).second)
        fail_at(name.pos, "each value to be defined once");
    }
  }
  void operands(Node& node) {
    expect('(');
    if (accept(')')) return;
    do {
      skip();
      const size_t start = pos_;
      const std::string_view name = word();
      pos_ += name.size();
      if (!name.empty()) expect('=');
      const ValueId id = value();
      node.operands[place(node.operands, op_def(node.op).operands, name, start)] = id;
    } while (accept(','));
    expect(')');
  }
  // Makes room for the slot of this name, or without one for the next that must be there.
  size_t place(ValueIds& ids, const SlotList& slots, std::string_view name, size_t pos) {
    if (name == "doc_starts") name = "key_begins";  // what attention's was called
    const size_t slot = name.empty() ? next_unnamed(ids, slots) : slots.find(name);
    const bool is_free = slot < slots.size() || (name.empty() && slots.has_many());
    if (!is_free || (slot < ids.size() && ids[slot] != kNoValue)) fail_at(pos, list_of(slots));
    ids.resize(std::max(ids.size(), slot + 1), kNoValue);
    return slot;
  }
  static size_t next_unnamed(const ValueIds& ids, const SlotList& slots) {
    for (size_t i = 0; i < slots.n_required(); ++i) {
      if (i >= ids.size() || ids[i] == kNoValue) return i;
    }
    return slots.has_many() ? std::max(ids.size(), slots.size() - 1) : slots.size();
  }
  static std::string list_of(const SlotList& slots) {
    std::string text = "each once of";
    for (size_t i = 0; i < slots.size(); ++i) {
      const Slot slot = slots[i];
      text += fmt::format("{} {}{}", i == 0 ? "" : ",", slot.name, slot.optional ? " =" : "");
    }
    return text + (slots.size() == 0 ? " nothing" : slots.has_many() ? " ..." : "");
  }
  void attributes(Node& node) {
    if (!accept('{') || accept('}')) return;
    do {
      const std::string_view name = word();
      bool known = false;
      std::visit(
          [&](auto& a) {
            std::decay_t<decltype(a)>::fields(a, [&](const char* field, auto& target) {
              if (known || name != field) return;
              known = true;
              pos_ += name.size();
              expect('=');
              attribute(target);
            });
          },
          node.attrs);
      if (!known && !former_attention(node.attrs, name)) former_attribute(node.op, name);
    } while (accept(','));
    expect('}');
  }
  // Attention of as many keys as queries, or as a cache has room for.
  bool former_attention(Attrs& attrs, std::string_view name) {
    auto* const a = std::get_if<AttentionAttrs>(&attrs);
    if (a == nullptr || (name != "seq" && name != "causal" && name != "capacity")) return false;
    pos_ += name.size();
    expect('=');
    if (bool is_causal = true; name == "causal") {
      attribute(is_causal);
      a->mask = is_causal ? AttentionMask::causal : AttentionMask::full;
    } else if (const auto n = number<int64_t>(); n > 0 || name == "seq") {
      (name == "seq" ? a->q_len : a->kv_len) = a->kv_len = n;
    }
    return true;
  }
  // How values are stored was said by attributes before types did: of operands 0 is "as they are".
  // Moments, whose operands say it, had any.
  void former_attribute(OpCode op, std::string_view name) {
    static constexpr std::string_view kOfResults[] = {
        "dtype", "rows", "scales", "transposed", "pad", "kept_dtype", "kept_group"};
    static constexpr std::string_view kNames[] = {"group",  "stored_group", "a_rows",
                                                  "a_cols", "b_rows",       "b_cols"};
    if (std::ranges::find(kOfResults, name) != std::end(kOfResults))
      fail("the type of the result to say it, e4m3:1x16[...] or e4m3:tensor^T16[...] for instance");
    if (std::ranges::find(kNames, name) == std::end(kNames)) fail("an attribute of this op");
    pos_ += name.size();
    expect('=');
    skip();
    const size_t start = pos_;
    if (number<int64_t>() != 0 && !op_def(op).takes_runs)
      fail_at(start, "0: types say how values are stored, e4m3:1x16[...] for instance");
  }
  template <typename T>
  void attribute(T& target) {
    if constexpr (std::is_same_v<T, bool>) {
      target = accept_keyword("true");
      if (!target && !accept_keyword("false")) fail("true or false");
    } else if constexpr (std::is_same_v<T, Shape>) {
      target = shape();
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      target = list<double>();
    } else if constexpr (std::is_enum_v<T>) {
      target = enumerator<T>();
    } else {
      target = number<T>();
    }
  }
  void tag(Tag& tag) {
    if (!accept('@')) return;
    if (accept_keyword("layer")) {
      tag.layer = number<int>();
      if (!accept(',')) tag.layer_name = string(), expect(',');
    }
    tag.role = enumerator<Role>();
    if (accept(',')) tag.origin = string();
  }
  void output() {
    keyword("output");
    GraphOutput result;
    result.name = string();
    result.value = value();
    if (accept_keyword("updates")) result.updates = value();
    graph_.outputs.push_back(std::move(result));
  }

  Graph& graph_;
  std::map<int64_t, ValueId> values_;
};

}  // namespace

Graph parse_graph(std::string_view text, const std::string& file) {
  Graph graph;
  Parser(text, file, graph).parse();
  return graph;
}

ValueIds append_node(Graph& graph, std::string_view text) {
  const size_t n_values = graph.values.size(), n_nodes = graph.nodes.size();
  try {
    Parser(text, "node", graph).append();
  } catch (const Error&) {
    graph.values.resize(n_values);
    graph.nodes.resize(n_nodes);
    throw;
  }
  return graph.nodes.back().results;
}

}  // namespace octet
