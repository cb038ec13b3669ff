#include <algorithm>

#include "text/jinja/parser.h"
#include "text/jinja/scopes.h"

namespace octet::jinja {

Parser::Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  tree_.names.assign(std::begin(kSpecialNames), std::end(kSpecialNames));
}

const Token& Parser::take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_op(std::string_view op) {
  const bool is_there = now().is_op(op);
  if (is_there) take();
  return is_there;
}

bool Parser::skip_name(std::string_view name) {
  const bool is_there = now().is_name(name);
  if (is_there) take();
  return is_there;
}

void Parser::fail(const std::string& what) const {
  fail_at(now().line, what);
}

void Parser::fail_unexpected(const std::string& expected) const {
  std::string got;
  switch (now().kind) {
    case TokenKind::end:
      got = "the end of the template";
      break;
    case TokenKind::variable_end:
      got = "}}";
      break;
    case TokenKind::block_end:
      got = "%}";
      break;
    case TokenKind::name:
    case TokenKind::op:
      got = "'" + now().text + "'";
      break;
    default:
      got = "a literal or text";
  }
  fail("expected " + expected + ", got " + got);
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_unexpected("'" + std::string(op) + "'");
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_unexpected("'" + std::string(name) + "'");
}

void Parser::expect(TokenKind kind, const char* what) {
  if (!now().is(kind)) fail_unexpected(what);
  take();
}

std::string Parser::take_name() {
  if (!now().is(TokenKind::name)) fail_unexpected("a name");
  return take().text;
}

int Parser::name_number(const std::string& name) {
  const auto it = std::find(tree_.names.begin(), tree_.names.end(), name);
  const auto number = static_cast<int>(it - tree_.names.begin());
  if (it == tree_.names.end()) tree_.names.push_back(name);
  return number;
}

StmtPtr Parser::make(StmtKind kind) const {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = now().line;
  return stmt;
}

Body Parser::body_until(EndTags ends) {
  Body body;
  Stmt* output = nullptr;  // that text and variables are added to
  const auto add = [&](ExprPtr expr) {
    if (output == nullptr) {
      body.push_back(make(StmtKind::output));
      output = body.back().get();
    }
    output->exprs.push_back(std::move(expr));
  };
  while (!now().is(TokenKind::end)) {
    if (now().is(TokenKind::data)) {
      ExprPtr data = make(ExprKind::constant, now().line);
      data->constant = std::make_shared<const Text>(take().text, false, nullptr);
      add(std::move(data));
    } else if (now().is(TokenKind::variable_begin)) {
      take();
      add(tuple({}));
      expect(TokenKind::variable_end, "'}}'");
    } else {
      expect(TokenKind::block_begin, "'{%'");
      output = nullptr;
      const bool is_end = std::any_of(ends.begin(), ends.end(),
                                      [&](std::string_view end) { return now().is_name(end); });
      if (is_end) return body;
      body.push_back(statement());
      expect(TokenKind::block_end, "'%}'");
    }
  }
  if (ends.size() > 0) fail_unexpected("{% " + std::string(*(ends.end() - 1)) + " %}");
  return body;
}

Body Parser::statements(EndTags ends) {
  skip_op(":");
  expect(TokenKind::block_end, "'%}'");
  return body_until(ends);
}

Body Parser::statements_to(std::string_view end) {
  Body body = statements({end});
  take();
  return body;
}

StmtPtr Parser::for_statement() {
  StmtPtr stmt = make(StmtKind::loop);
  take();
  stmt->target = assign_target(false, "in");
  expect_name("in");
  stmt->value = tuple({.conditional = Conditional::refused, .end = "recursive"});
  const int soft = std::exchange(soft_, 0);
  if (skip_name("if")) stmt->test = expression();
  stmt->is_recursive = skip_name("recursive");
  ++loops_;
  stmt->body = statements({"else", "endfor"});
  --loops_;
  if (take().text == "else") stmt->else_body = statements_to("endfor");
  soft_ = soft;
  return stmt;
}

StmtPtr Parser::if_statement() {
  StmtPtr stmt = make(StmtKind::branch);
  ++soft_;
  while (true) {
    take();
    ExprPtr condition = tuple({.conditional = Conditional::refused});
    Body body = statements({"elif", "else", "endif"});
    stmt->branches.push_back({std::move(condition), std::move(body)});
    if (now().is_name("elif")) continue;
    if (take().text == "else") stmt->else_body = statements_to("endif");
    break;
  }
  --soft_;
  return stmt;
}

StmtPtr Parser::set_statement() {
  StmtPtr stmt = make(StmtKind::assign);
  take();
  stmt->target = assign_target(true);
  if (skip_op("=")) {
    stmt->value = tuple({});
    return stmt;
  }
  stmt->kind = StmtKind::assign_block;
  if (now().is_op("|")) stmt->value = filter_chain(nullptr, false);
  const int soft = std::exchange(soft_, 0);
  stmt->body = statements_to("endset");
  soft_ = soft;
  return stmt;
}

StmtPtr Parser::with_statement() {
  StmtPtr stmt = make(StmtKind::with);
  take();
  const int soft = std::exchange(soft_, 0);
  while (!now().is(TokenKind::block_end)) {
    if (!stmt->targets.empty()) expect_op(",");
    stmt->targets.push_back(assign_target(false));
    expect_op("=");
    stmt->exprs.push_back(expression());
  }
  stmt->body = statements_to("endwith");
  soft_ = soft;
  return stmt;
}

void Parser::signature(Stmt& stmt) {
  expect_op("(");
  bool has_fallback = false;
  while (!now().is_op(")")) {
    if (!stmt.parameters.empty()) expect_op(",");
    Parameter parameter;
    parameter.text = take_name();
    parameter.name = name_number(parameter.text);
    if (skip_op("=")) {
      parameter.fallback = expression();
      has_fallback = true;
    } else if (has_fallback) {
      fail("a parameter without a default follows one with a default");
    }
    stmt.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

StmtPtr Parser::macro_statement() {
  StmtPtr stmt = make(StmtKind::macro);
  take();
  stmt->text = take_name();
  stmt->name = name_number(stmt->text);
  const int soft = std::exchange(soft_, 0), loops = std::exchange(loops_, 0);
  signature(*stmt);
  stmt->body = statements_to("endmacro");
  soft_ = soft;
  loops_ = loops;
  return stmt;
}

StmtPtr Parser::call_statement() {
  StmtPtr stmt = make(StmtKind::call_block);
  take();
  const int soft = std::exchange(soft_, 0), loops = std::exchange(loops_, 0);
  if (now().is_op("(")) signature(*stmt);
  stmt->value = expression();
  if (stmt->value->kind != ExprKind::call) fail("{% call %} expected a call");
  stmt->body = statements_to("endcall");
  soft_ = soft;
  loops_ = loops;
  return stmt;
}

StmtPtr Parser::filter_statement() {
  StmtPtr stmt = make(StmtKind::filter_block);
  take();
  const int soft = std::exchange(soft_, 0);
  stmt->value = filter_chain(nullptr, true);
  stmt->body = statements_to("endfilter");
  soft_ = soft;
  return stmt;
}

StmtPtr Parser::generation_statement() {
  StmtPtr stmt = make(StmtKind::generation);
  take();
  tree_.has_generation = true;
  const int soft = std::exchange(soft_, 0), loops = std::exchange(loops_, 0);
  stmt->body = statements_to("endgeneration");
  soft_ = soft;
  loops_ = loops;
  return stmt;
}

StmtPtr Parser::block_statement() {
  StmtPtr stmt = make(StmtKind::block);
  take();
  stmt->text = take_name();
  if (now().is(TokenKind::name)) {
    fail("{% block %} with '" + now().text + "' is outside the supported subset");
  }
  const int soft = std::exchange(soft_, 0), loops = std::exchange(loops_, 0);
  stmt->body = statements_to("endblock");
  skip_name(stmt->text);
  soft_ = soft;
  loops_ = loops;
  return stmt;
}

StmtPtr Parser::print_statement() {
  StmtPtr stmt = make(StmtKind::output);
  take();
  while (!now().is(TokenKind::block_end)) {
    if (!stmt->exprs.empty()) expect_op(",");
    stmt->exprs.push_back(expression());
  }
  return stmt;
}

StmtPtr Parser::loop_control(StmtKind kind) {
  StmtPtr stmt = make(kind);
  if (loops_ == 0) fail("'" + now().text + "' stands outside a loop");
  take();
  return stmt;
}

StmtPtr Parser::statement() {
  if (depth_ > 100) fail("the template is nested too deeply");
  struct Level {
    int& depth;
    explicit Level(int& of) : depth(of) { ++depth; }
    ~Level() { --depth; }
  } const level(depth_);
  if (!now().is(TokenKind::name)) fail_unexpected("the name of a tag");
  const std::string& tag = now().text;
  if (tag == "for") return for_statement();
  if (tag == "if") return if_statement();
  if (tag == "set") return set_statement();
  if (tag == "macro") return macro_statement();
  if (tag == "generation") return generation_statement();
  if (tag == "filter") return filter_statement();
  if (tag == "call") return call_statement();
  if (tag == "with") return with_statement();
  if (tag == "block") return block_statement();
  if (tag == "print") return print_statement();
  if (tag == "break") return loop_control(StmtKind::break_loop);
  if (tag == "continue") return loop_control(StmtKind::continue_loop);
  for (const std::string_view refused : {"extends", "include", "import", "from", "autoescape"}) {
    if (tag == refused) fail("{% " + tag + " %} is outside the supported subset");
  }
  fail("there is no tag {% " + tag + " %} here");
}

Tree Parser::run() {
  tree_.body = body_until({});
  plan_scopes(tree_);
  return std::move(tree_);
}

Tree parse(std::string_view source) {
  return Parser(tokenize(source)).run();
}

}  // namespace octet::jinja
