#include <algorithm>

#include "text/jinja/parser.h"

namespace octet::jinja {
namespace {

struct BinaryRow {
  size_t level;
  std::string_view token;
  ExprKind kind;
  Operator op = Operator::add;
};
constexpr size_t kNegation = 2, kSum = 2, kUnary = 5;  // kNegation: what level 1 joins
constexpr BinaryRow kBinary[] = {
    {0, "or", ExprKind::logical_or},
    {1, "and", ExprKind::logical_and},
    {2, "+", ExprKind::arithmetic, Operator::add},
    {2, "-", ExprKind::arithmetic, Operator::sub},
    {3, "~", ExprKind::concat},
    {4, "*", ExprKind::arithmetic, Operator::mul},
    {4, "/", ExprKind::arithmetic, Operator::div},
    {4, "//", ExprKind::arithmetic, Operator::floor_div},
    {4, "%", ExprKind::arithmetic, Operator::mod},
};
constexpr std::pair<std::string_view, Operator> kComparisons[] = {
    {"==", Operator::eq}, {"!=", Operator::ne}, {"<", Operator::lt}, {"<=", Operator::le},
    {">", Operator::gt},  {">=", Operator::ge}, {"in", Operator::in}};

}  // namespace

class Parser::Depth {
 public:
  explicit Depth(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > parser_.limits_.max_nesting)
      parser_.fail("the template is nested too deeply");
  }
  ~Depth() { --parser_.depth_; }

 private:
  Parser& parser_;
};

ExprPtr Parser::make(ExprKind kind, int line) {
  Expr& expr = tree_.exprs.emplace_back();
  expr.kind = kind;
  expr.line = line;
  return &expr;
}

ExprPtr Parser::constant(Value value, int line) {
  ExprPtr expr = make(ExprKind::constant, line);
  expr->constant = value;
  return expr;
}

void Parser::adopt(Expr& parent, ExprPtr child) const {
  if (child) parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > limits_.max_nesting) fail("an expression is nested too deeply");
  parent.children.push_back(child);
}

ExprPtr Parser::join(ExprKind kind, int line, ExprPtr left, ExprPtr right) {
  ExprPtr expr = make(kind, line);
  adopt(*expr, left);
  if (right) adopt(*expr, right);
  return expr;
}

ExprPtr Parser::expression(bool with_condition) {
  const Depth depth(*this);
  int line = now().line;
  ExprPtr expr = binary(0);
  while (with_condition && skip("if")) {
    ExprPtr condition = binary(0);
    expr = join(ExprKind::conditional, line, expr, condition);
    adopt(*expr, skip("else") ? expression() : nullptr);
    line = now().line;
  }
  return expr;
}

ExprPtr Parser::binary(size_t level) {
  if (level == kUnary) return unary();
  const auto next = [&] { return level + 1 == kNegation ? negation() : binary(level + 1); };
  int line = now().line;
  ExprPtr left = next();
  while (true) {
    const auto* row = std::find_if(std::begin(kBinary), std::end(kBinary), [&](const BinaryRow& r) {
      return r.level == level && is_op_or_name(r.token);
    });
    if (row == std::end(kBinary)) return left;
    const bool is_text = left->kind == ExprKind::constant && left->constant.is_text();
    if (row->op == Operator::mod && is_text) {
      fail("text % values is outside the supported subset");
    }
    take();
    left = join(row->kind, line, left, next());
    left->ops = {row->op};
    line = now().line;
  }
}

ExprPtr Parser::negation() {
  if (!now().is_name("not")) return comparison();
  const Depth depth(*this);
  const int line = take().line;
  return join(ExprKind::logical_not, line, negation());
}

ExprPtr Parser::comparison() {
  ExprPtr all = make(ExprKind::comparison, now().line);
  adopt(*all, binary(kSum));
  while (true) {
    const auto* row = std::find_if(std::begin(kComparisons), std::end(kComparisons),
                                   [&](const auto& r) { return is_op_or_name(r.first); });
    if (row != std::end(kComparisons)) {
      all->ops.push_back(row->second);
    } else if (now().is_name("not") && after().is_name("in")) {
      take();
      all->ops.push_back(Operator::not_in);
    } else {
      return all->ops.empty() ? all->children[0] : all;
    }
    take();
    adopt(*all, binary(kSum));
  }
}

ExprPtr Parser::unary(bool with_filter) {
  const Depth depth(*this);
  const int line = now().line;
  ExprPtr expr;
  if (skip("-")) {
    expr = join(ExprKind::negative, line, unary(false));
  } else if (skip("+")) {  // -(-x): Python's, and refused of what is no number
    expr = join(ExprKind::negative, line, join(ExprKind::negative, line, unary(false)));
  } else {
    expr = primary();
  }
  expr = postfix(expr);
  while (with_filter) {
    if (skip("|")) {
      expr = filter(expr);
    } else if (now().is_name("is")) {
      expr = test(expr);
    } else if (now().is_op("(")) {
      expr = call(expr);
    } else {
      break;
    }
  }
  return expr;
}

ExprPtr Parser::name_or_constant() {
  static const std::pair<std::string_view, Value> kConstants[] = {
      {"true", true},   {"True", true},   {"false", false},
      {"False", false}, {"none", None{}}, {"None", None{}}};
  const Token& token = take();
  for (const auto& [name, value] : kConstants) {
    if (token.text == name) return constant(value, token.line);
  }
  if (!macros_.empty() && (token.text == "varargs" || token.text == "kwargs")) {
    fail("'" + token.text + "' of a macro is outside the supported subset");
  }
  ExprPtr expr = make(ExprKind::name, token.line);
  expr->text = token.text;
  expr->name = name_number(token.text);
  if (scopes_ == 0) used_.insert(expr->name);
  for (Stmt* macro : macros_) macro->uses_caller |= expr->name == kCaller;
  return expr;
}

ExprPtr Parser::primary() {
  const Token& token = now();
  if (token.is(TokenKind::name)) return name_or_constant();
  if (token.is(TokenKind::integer)) return constant(take().integer, token.line);
  if (token.is(TokenKind::real)) return constant(take().real, token.line);
  if (skip("[")) return bracketed(ExprKind::list, "]");
  if (skip("{")) return bracketed(ExprKind::dict, "}");
  if (skip("(")) {
    ExprPtr expr = tuple(true, true);
    expect(")");
    return expr;
  }
  if (!token.is(TokenKind::string)) fail_unexpected("an expression");
  std::string text;
  while (now().is(TokenKind::string)) text += take().text;
  return constant(text_constant(text), token.line);
}

ExprPtr Parser::tuple(bool with_condition, bool is_explicit) {
  ExprPtr all = make(ExprKind::tuple, now().line);
  bool is_tuple = false;
  while (!now().is(TokenKind::variable_end) && !now().is(TokenKind::block_end) &&
         !now().is_op(")")) {
    adopt(*all, expression(with_condition));
    if (!skip(",")) break;
    is_tuple = true;
  }
  if (all->children.empty() && !is_explicit) fail_unexpected("an expression");
  const bool is_one = !is_tuple && !all->children.empty();
  return is_one ? all->children[0] : all;
}

ExprPtr Parser::bracketed(ExprKind kind, std::string_view close) {
  ExprPtr all = make(kind, now().line);
  while (!skip(close)) {
    if (!all->children.empty()) expect(",");
    if (skip(close)) break;
    adopt(*all, expression());
    if (kind != ExprKind::dict) continue;
    expect(":");
    adopt(*all, expression());
  }
  return all;
}

void Parser::store(int name) {
  if (scopes_ > 0) return;
  if (used_.insert(name).second && branches_ == 0) tree_.assigned_first.push_back(name);
}

void Parser::store(const Expr& target) {
  if (target.kind == ExprKind::name) store(target.name);
  for (const ExprPtr& child : target.children) store(*child);
}

ExprPtr Parser::single_target(bool with_namespace) {
  const Depth depth(*this);
  if (skip("(")) {
    ExprPtr inner = target(with_namespace);
    expect(")");
    return inner;
  }
  ExprPtr one = make(ExprKind::name, now().line);
  one->name = name_number(take_name());
  if (with_namespace && skip(".")) {
    one->kind = ExprKind::namespace_target;
    one->constant = text_constant(take_name());
  }
  return one;
}

ExprPtr Parser::target(bool with_namespace) {
  const int line = now().line;
  ExprPtr first = single_target(with_namespace);
  if (!now().is_op(",")) return first;
  ExprPtr all = join(ExprKind::tuple, line, first);
  while (skip(",") && !now().is_name("in") && !now().is_op(")")) {
    adopt(*all, single_target(with_namespace));
  }
  return all;
}

ExprPtr Parser::postfix(ExprPtr expr) {
  while (true) {
    if (now().is_op(".") || now().is_op("[")) {
      expr = subscript(expr);
    } else if (now().is_op("(")) {
      expr = call(expr);
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr expr) {
  const int line = now().line;
  if (take().text == "[") return item(expr, line);
  if (now().is(TokenKind::integer)) {
    return join(ExprKind::item, line, expr, constant(take().integer, line));
  }
  const std::string name = take_name();
  ExprPtr attribute = join(ExprKind::attribute, line, expr, constant(text_constant(name), line));
  attribute->text = name;
  return attribute;
}

ExprPtr Parser::item(ExprPtr expr, int line) {
  ExprPtr parts[3] = {};
  int n_colons = 0;
  if (!now().is_op(":")) parts[0] = expression();
  while (n_colons < 2 && skip(":")) {
    ++n_colons;
    if (!now().is_op(":") && !now().is_op("]")) parts[n_colons] = expression();
  }
  expect("]");
  if (n_colons == 0) return join(ExprKind::item, line, expr, parts[0]);
  ExprPtr slice = join(ExprKind::slice, line, expr);
  for (ExprPtr& part : parts) adopt(*slice, part);
  return slice;
}

ExprPtr Parser::call(ExprPtr expr) {
  const bool is_method = expr->kind == ExprKind::attribute, is_name = expr->kind == ExprKind::name;
  if ((is_method && is_outside(kOfText, expr->text)) ||
      (is_name && is_outside(kFunction, expr->text))) {
    fail("'" + expr->text + "' is outside the supported subset");
  }
  ExprPtr call = join(ExprKind::call, now().line, expr);
  call_arguments(*call);
  return call;
}

void Parser::argument(Expr& call, std::string key, ExprPtr value) const {
  call.depth = std::max(call.depth, value->depth + 1);
  call.arguments.emplace_back(std::move(key), value);
}

void Parser::call_arguments(Expr& call) {
  std::unordered_set<std::string> keys;
  expect("(");
  while (!skip(")")) {
    if (!call.arguments.empty()) expect(",");
    if (skip(")")) return;
    std::string key;
    const bool is_named = now().is(TokenKind::name) && after().is_op("=");
    if (is_named || now().is_op("*")) {
      key = take().text;
      if (is_named) take();
      if (!keys.insert(key).second) fail("expected argument '" + key + "' once, got it twice");
    } else if (!keys.empty()) {
      fail("arguments of a call are in the wrong order");
    }
    argument(call, std::move(key), expression());
  }
}

void Parser::find(Expr& expr, Use use) {
  expr.text = take_name();
  expr.builtin = find_builtin(use, expr.text);
  if (is_outside(use, expr.text)) {
    fail((use == kFilter ? "filter '" : "test '") + expr.text +
         "' is outside the supported subset");
  }
}

// After the bar, or {% filter.
ExprPtr Parser::filter(ExprPtr expr) {
  ExprPtr filter = make(ExprKind::filter, now().line);
  find(*filter, kFilter);
  adopt(*filter, expr);
  if (now().is_op("(")) call_arguments(*filter);
  return filter;
}

ExprPtr Parser::filters(ExprPtr expr) {
  do expr = filter(expr);
  while (skip("|"));
  return expr;
}

ExprPtr Parser::test(ExprPtr expr) {
  ExprPtr test = make(ExprKind::test, take().line);
  const bool is_negated = skip("not");
  find(*test, kTest);
  adopt(*test, expr);
  const bool is_operator = now().is_name("else") || now().is_name("or") || now().is_name("and");
  const bool is_literal = now().kind >= TokenKind::name && now().kind <= TokenKind::real;
  const bool is_argument = is_literal || now().is_op("[") || now().is_op("{");
  if (now().is_op("(")) {
    call_arguments(*test);
  } else if (is_argument && !is_operator) {
    argument(*test, "", postfix(primary()));
  }
  const int line = test->line;
  return is_negated ? join(ExprKind::logical_not, line, test) : test;
}

}  // namespace octet::jinja
