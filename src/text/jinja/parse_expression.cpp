#include <algorithm>

#include "text/jinja/parser.h"

namespace octet::jinja {
namespace {

constexpr int kMaxDepth = 250;  // of expressions and statements within each other

}  // namespace

class Parser::Depth {
 public:
  explicit Depth(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > kMaxDepth) parser_.fail("the template is nested too deeply");
  }
  ~Depth() { --parser_.depth_; }

 private:
  Parser& parser_;
};

ExprPtr Parser::make(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

void Parser::adopt(Expr& parent, ExprPtr child) const {
  if (child) parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxDepth) fail("an expression is nested too deeply");
  parent.children.push_back(std::move(child));
}

ExprPtr Parser::join(ExprKind kind, int line, ExprPtr left, ExprPtr right) const {
  ExprPtr expr = make(kind, line);
  adopt(*expr, std::move(left));
  adopt(*expr, std::move(right));
  return expr;
}

ExprPtr Parser::expression(Conditional conditional) {
  const Depth depth(*this);
  return conditional == Conditional::allowed ? conditional_expression() : or_expression();
}

ExprPtr Parser::conditional_expression() {
  int line = now().line;
  const size_t begin = at_;
  ExprPtr expr = or_expression();
  while (now().is_name("if")) {
    // What is unknown within is an error only where it is reached: read it again as such.
    if (soft_ == 0) {
      ++soft_;
      at_ = begin;
      expr = conditional_expression();
      --soft_;
      return expr;
    }
    take();
    ExprPtr condition = or_expression();
    ExprPtr otherwise;
    if (skip_name("else")) {
      const Depth depth(*this);
      otherwise = conditional_expression();
    }
    expr = join(ExprKind::conditional, line, std::move(expr), std::move(condition));
    adopt(*expr, std::move(otherwise));
    line = now().line;
  }
  return expr;
}

ExprPtr Parser::or_expression() {
  int line = now().line;
  ExprPtr left = and_expression();
  while (skip_name("or")) {
    left = join(ExprKind::logical_or, line, std::move(left), and_expression());
    line = now().line;
  }
  return left;
}

ExprPtr Parser::and_expression() {
  int line = now().line;
  ExprPtr left = not_expression();
  while (skip_name("and")) {
    left = join(ExprKind::logical_and, line, std::move(left), not_expression());
    line = now().line;
  }
  return left;
}

ExprPtr Parser::not_expression() {
  if (!now().is_name("not")) return comparison();
  const Depth depth(*this);
  ExprPtr expr = make(ExprKind::logical_not, take().line);
  adopt(*expr, not_expression());
  return expr;
}

ExprPtr Parser::comparison() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::eq}, {"!=", Operator::ne}, {"<", Operator::lt},
      {"<=", Operator::le}, {">", Operator::gt},  {">=", Operator::ge}};
  ExprPtr all = make(ExprKind::comparison, now().line);
  adopt(*all, sum());
  while (true) {
    const auto* row = std::find_if(std::begin(kOperators), std::end(kOperators),
                                   [&](const auto& r) { return now().is_op(r.first); });
    if (row != std::end(kOperators)) {
      take();
      all->ops.push_back(row->second);
    } else if (skip_name("in")) {
      all->ops.push_back(Operator::in);
    } else if (now().is_name("not") && after().is_name("in")) {
      take();
      take();
      all->ops.push_back(Operator::not_in);
    } else {
      break;
    }
    adopt(*all, sum());
  }
  return all->ops.empty() ? std::move(all->children[0]) : std::move(all);
}

ExprPtr Parser::sum() {
  int line = now().line;
  ExprPtr left = concatenation();
  while (now().is_op("+") || now().is_op("-")) {
    const Operator op = take().text == "+" ? Operator::add : Operator::sub;
    left = join(ExprKind::arithmetic, line, std::move(left), concatenation());
    left->op = op;
    line = now().line;
  }
  return left;
}

ExprPtr Parser::concatenation() {
  ExprPtr all = make(ExprKind::concat, now().line);
  adopt(*all, product());
  while (skip_op("~")) adopt(*all, product());
  return all->children.size() == 1 ? std::move(all->children[0]) : std::move(all);
}

ExprPtr Parser::product() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"*", Operator::mul},
      {"/", Operator::div},
      {"//", Operator::floor_div},
      {"%", Operator::mod}};
  int line = now().line;
  ExprPtr left = power();
  while (true) {
    const auto* row = std::find_if(std::begin(kOperators), std::end(kOperators),
                                   [&](const auto& r) { return now().is_op(r.first); });
    if (row == std::end(kOperators)) return left;
    take();
    left = join(ExprKind::arithmetic, line, std::move(left), power());
    left->op = row->second;
    line = now().line;
  }
}

// As Jinja has it, a ** b ** c is (a ** b) ** c.
ExprPtr Parser::power() {
  int line = now().line;
  ExprPtr left = unary();
  while (skip_op("**")) {
    left = join(ExprKind::arithmetic, line, std::move(left), unary());
    left->op = Operator::pow;
    line = now().line;
  }
  return left;
}

ExprPtr Parser::unary(bool with_filter) {
  const Depth depth(*this);
  ExprPtr expr;
  if (now().is_op("-") || now().is_op("+")) {
    const bool is_negative = now().is_op("-");
    expr = make(is_negative ? ExprKind::negative : ExprKind::positive, take().line);
    adopt(*expr, unary(false));
  } else {
    expr = primary();
  }
  expr = postfix(std::move(expr));
  return with_filter ? filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::name_or_constant(bool with_namespace) {
  const Token& token = take();
  ExprPtr expr = make(ExprKind::constant, token.line);
  if (token.text == "true" || token.text == "True") {
    expr->constant = true;
  } else if (token.text == "false" || token.text == "False") {
    expr->constant = false;
  } else if (token.text == "none" || token.text == "None") {
    expr->constant = None{};
  } else {
    expr->kind = ExprKind::name;
    expr->name = name_number(token.text);
    if (with_namespace && skip_op(".")) {
      expr->kind = ExprKind::namespace_target;
      expr->text = take_name();
    }
  }
  return expr;
}

ExprPtr Parser::primary(bool with_namespace) {
  const Depth depth(*this);
  const Token& token = now();
  if (token.is(TokenKind::name)) return name_or_constant(with_namespace);
  ExprPtr expr = make(ExprKind::constant, token.line);
  if (token.is(TokenKind::string)) {
    std::string text;
    while (now().is(TokenKind::string)) text += take().text;
    expr->constant = std::make_shared<const Text>(std::move(text), false, nullptr);
  } else if (token.is(TokenKind::integer)) {
    expr->constant = take().integer;
  } else if (token.is(TokenKind::real)) {
    expr->constant = take().real;
  } else if (token.is_op("(")) {
    take();
    expr = tuple({.is_explicit = true});
    expect_op(")");
  } else if (token.is_op("[")) {
    expr = list();
  } else if (token.is_op("{")) {
    expr = dict();
  } else {
    fail_unexpected("an expression");
  }
  return expr;
}

ExprPtr Parser::tuple(const TupleRules& rules) {
  ExprPtr all = make(ExprKind::tuple, now().line);
  bool is_tuple = false;
  while (true) {
    if (!all->children.empty()) expect_op(",");
    const bool is_end = now().is(TokenKind::variable_end) || now().is(TokenKind::block_end) ||
                        now().is_op(")") || (!rules.end.empty() && now().is_name(rules.end));
    if (is_end) break;
    adopt(*all, rules.is_simple ? primary(rules.with_namespace) : expression(rules.conditional));
    if (!now().is_op(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return all;
  if (!all->children.empty()) return std::move(all->children[0]);
  if (!rules.is_explicit) fail_unexpected("an expression");
  return all;
}

ExprPtr Parser::list() {
  ExprPtr all = make(ExprKind::list, take().line);
  while (!now().is_op("]")) {
    if (!all->children.empty()) expect_op(",");
    if (now().is_op("]")) break;
    adopt(*all, expression());
  }
  expect_op("]");
  return all;
}

ExprPtr Parser::dict() {
  ExprPtr all = make(ExprKind::dict, take().line);
  while (!now().is_op("}")) {
    if (!all->children.empty()) expect_op(",");
    if (now().is_op("}")) break;
    adopt(*all, expression());
    expect_op(":");
    adopt(*all, expression());
  }
  expect_op("}");
  return all;
}

void Parser::check_target(const Expr& target) const {
  if (target.kind == ExprKind::name || target.kind == ExprKind::namespace_target) return;
  if (target.kind != ExprKind::tuple) fail("expected a name to assign to");
  for (const ExprPtr& child : target.children) check_target(*child);
}

ExprPtr Parser::assign_target(bool with_namespace, std::string_view end) {
  ExprPtr target = tuple({.is_simple = true, .with_namespace = with_namespace, .end = end});
  check_target(*target);
  return target;
}

}  // namespace octet::jinja
