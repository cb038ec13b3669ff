#include "ir/parse.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <type_traits>

#include "base/error.h"
#include "ir/op_def.h"

namespace octet {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Graph parse() {
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
    return std::move(graph_);
  }

 private:
  // A value to be defined, where its name stands, and the slot that it is, if that is said.
  struct Name {
    int64_t number = 0;
    size_t pos = 0;
    std::string_view slot = {};
    size_t slot_pos = 0;
  };

  [[noreturn]] void fail(std::string_view expected) { fail_at(pos_, expected); }
  [[noreturn]] void fail_at(size_t pos, std::string_view expected) {
    int line = 1, column = 1;
    for (size_t i = 0; i < pos && i < text_.size(); ++i) {
      column = text_[i] == '\n' ? 1 : column + 1;
      line += text_[i] == '\n' ? 1 : 0;
    }
    throw Error(ErrorCode::invalid_argument, "{}:{}:{}: expected {}, got {}", file_, line, column,
                expected, word_at(pos));
  }
  // What stands there, as far as a terminal can show it.
  std::string word_at(size_t pos) const {
    if (pos >= text_.size()) return "the end";
    const size_t end = std::min(text_.find_first_of(" \n\t,(){}[]", pos + 1), pos + 20);
    std::string shown = "'";
    for (const char ch : text_.substr(pos, end - pos)) {
      const bool is_printable = ch >= ' ' && ch != 0x7f;
      shown += is_printable ? std::string(1, ch)
                            : fmt::format("\\x{:02x}", static_cast<unsigned char>(ch));
    }
    return shown + "'";
  }

  void skip() {
    while (pos_ < text_.size()) {
      const char ch = text_[pos_];
      if (ch == '#') {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else if (ch == ' ' || ch == '\n' || ch == '\t' || ch == '\r') {
        ++pos_;
      } else {
        return;
      }
    }
  }
  char peek() {
    skip();
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool accept(char ch) {
    if (peek() != ch) return false;
    ++pos_;
    return true;
  }
  void expect(char ch) {
    if (!accept(ch)) fail(fmt::format("'{}'", ch));
  }
  std::string_view word() {
    skip();
    size_t end = pos_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '_'))
      ++end;
    return text_.substr(pos_, end - pos_);
  }
  void keyword(std::string_view wanted) {
    if (word() != wanted) fail(fmt::format("'{}'", wanted));
    pos_ += wanted.size();
  }
  bool accept_keyword(std::string_view wanted) {
    if (word() != wanted) return false;
    pos_ += wanted.size();
    return true;
  }
  std::string string() {
    expect('"');
    std::string out;
    while (pos_ < text_.size() && text_[pos_] != '"') {
      if (text_[pos_] == '\\' && pos_ + 1 < text_.size()) ++pos_;
      out += text_[pos_++];
    }
    if (pos_ >= text_.size()) fail("'\"'");
    ++pos_;
    return out;
  }
  template <typename T>
  T number() {
    skip();
    T value{};
    const auto [end, error] =
        std::from_chars(text_.data() + pos_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("a number");
    pos_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  template <typename E>
  E enumerator() {
    const std::string_view name = word();
    std::string known;
    for (int i = 0; i < enum_count(E{}); ++i) {
      if (enum_name(static_cast<E>(i)) == name) {
        pos_ += name.size();
        return static_cast<E>(i);
      }
      known += fmt::format("{}{}", i == 0 ? "" : " | ", enum_name(static_cast<E>(i)));
    }
    fail(known);
  }
  Shape shape() {
    Shape dims;
    expect('[');
    if (accept(']')) return dims;
    do {
      dims.push_back(number<int64_t>());
    } while (accept(','));
    expect(']');
    return dims;
  }
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
    operands(node);
    attributes(node);
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
      if (!target) keyword("false");
    } else if constexpr (std::is_same_v<T, Shape>) {
      target = shape();
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

  std::string_view text_;
  std::string file_;
  size_t pos_ = 0;
  Graph graph_;
  std::map<int64_t, ValueId> values_;
};

}  // namespace

Graph parse_graph(std::string_view text, const std::string& file) {
  return Parser(text, file).parse();
}

}  // namespace octet
