#include <algorithm>

#include "text/jinja/parser.h"

namespace octet::jinja {

Parser::Parser(std::vector<Token> tokens, const TemplateLimits& limits)
    : tokens_(std::move(tokens)), limits_(limits) {
  for (const char* name : kSpecialNames) name_number(name);
}

const Token& Parser::take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip(std::string_view op_or_name) {
  const bool is_there = is_op_or_name(op_or_name);
  if (is_there) take();
  return is_there;
}

void Parser::fail_unexpected(const std::string& expected) const {
  const std::string& text = now().text;
  fail("expected " + expected + ", got " +
       (now().is(TokenKind::end) ? "the end of the template"
        : text.empty()           ? "a literal or text"
                                 : "'" + text + "'"));
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
  const auto [it, is_new] = numbers_.try_emplace(name, static_cast<int>(tree_.names.size()));
  if (is_new) tree_.names.push_back(name);
  return it->second;
}

Stmt& Parser::add(Body& body, StmtKind kind) const {
  body.push_back(std::make_unique<Stmt>());
  body.back()->kind = kind;
  body.back()->line = now().line;
  return *body.back();
}

Body Parser::body_until(EndTags ends) {
  Body body;
  Stmt* output = nullptr;  // the last statement, where it is one
  const auto write = [&](ExprPtr expr) {
    if (!output) output = &add(body, StmtKind::output);
    output->exprs.push_back(expr);
  };
  while (!now().is(TokenKind::end)) {
    if (now().is(TokenKind::data)) {
      const Token& data = take();
      write(constant(text_constant(data.text), data.line));
    } else if (now().is(TokenKind::variable_begin)) {
      take();
      write(tuple());
      expect(TokenKind::variable_end, "'}}'");
    } else {
      expect(TokenKind::block_begin, "'{%'");
      output = nullptr;
      const bool is_end = std::any_of(ends.begin(), ends.end(),
                                      [&](std::string_view end) { return now().is_name(end); });
      if (is_end) return body;
      statement(add(body, StmtKind::output));
      expect(TokenKind::block_end, "'%}'");
    }
  }
  if (ends.size() > 0) fail_unexpected("{% " + std::string(*(ends.end() - 1)) + " %}");
  return body;
}

Body Parser::statements(EndTags ends, bool opens_scope) {
  skip(":");
  expect(TokenKind::block_end, "'%}'");
  int& level = opens_scope ? scopes_ : branches_;
  ++level;
  Body body = body_until(ends);
  --level;
  return body;
}

Body Parser::statements_to(std::string_view end) {
  Body body = statements({end});
  take();
  return body;
}

void Parser::for_statement(Stmt& stmt) {
  ++loops_;
  stmt.target = target(false);
  expect("in");
  stmt.value = tuple(false);
  if (skip("if")) stmt.test = expression();
  if (now().is_name("recursive")) fail("{% for recursive %} is outside the supported subset");
  stmt.body = statements({"else", "endfor"});
  --loops_;
  if (take().text == "else") stmt.else_body = statements_to("endfor");
}

void Parser::if_statement(Stmt& stmt) {
  do {
    ExprPtr condition = tuple(false);
    stmt.branches.push_back({condition, statements({"elif", "else", "endif"}, false)});
  } while (skip("elif"));
  if (take().text != "else") return;
  stmt.else_body = statements({"endif"}, false);
  take();
}

void Parser::set_statement(Stmt& stmt) {
  stmt.target = target(true);
  if (skip("=")) {
    stmt.value = tuple();
    return store(*stmt.target);
  }
  store(*stmt.target);
  stmt.kind = StmtKind::assign_block;
  if (skip("|")) stmt.value = filters(nullptr);
  stmt.body = statements_to("endset");
}

void Parser::signature(Stmt& stmt) {
  expect("(");
  while (!skip(")")) {
    if (!stmt.parameters.empty()) expect(",");
    Parameter parameter;
    parameter.text = take_name();
    parameter.name = name_number(parameter.text);
    if (skip("=")) parameter.fallback = expression();
    stmt.parameters.push_back(std::move(parameter));
  }
}

void Parser::macro_statement(Stmt& stmt, std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  const bool is_call = stmt.kind == StmtKind::call_block;
  if (stmt.kind == StmtKind::macro) {
    stmt.text = take_name();
    stmt.name = name_number(stmt.text);
    store(stmt.name);
  }
  if (stmt.kind == StmtKind::macro || (is_call && now().is_op("("))) signature(stmt);
  if (is_call) stmt.value = expression();
  if (is_call && stmt.value->kind != ExprKind::call) fail("{% call %} expected a call");
  macros_.push_back(&stmt);
  stmt.body = statements_to(end);
  macros_.pop_back();
  tree_.has_generation |= stmt.kind == StmtKind::generation;
  loops_ = loops;
}

void Parser::statement(Stmt& stmt) {
  static constexpr std::pair<std::string_view, StmtKind> kTags[] = {
      {"for", StmtKind::loop},
      {"if", StmtKind::branch},
      {"set", StmtKind::assign},
      {"macro", StmtKind::macro},
      {"call", StmtKind::call_block},
      {"filter", StmtKind::filter_block},
      {"generation", StmtKind::generation},
      {"break", StmtKind::break_loop},
      {"continue", StmtKind::continue_loop}};
  if (depth_ > limits_.max_statements) fail("the template is nested too deeply");
  const std::string tag = take_name();
  const auto* row = std::find_if(std::begin(kTags), std::end(kTags),
                                 [&](const auto& r) { return r.first == tag; });
  if (row == std::end(kTags)) {
    const bool is_known = is_outside(kTag, tag);
    fail(is_known ? "{% " + tag + " %} is outside the supported subset"
                  : "there is no tag {% " + tag + " %} here");
  }
  ++depth_;
  stmt.kind = row->second;
  switch (stmt.kind) {
    case StmtKind::loop:
      for_statement(stmt);
      break;
    case StmtKind::branch:
      if_statement(stmt);
      break;
    case StmtKind::assign:
      set_statement(stmt);
      break;
    case StmtKind::filter_block:
      stmt.value = filters(nullptr);
      stmt.body = statements_to("endfilter");
      break;
    case StmtKind::break_loop:
    case StmtKind::continue_loop:
      if (loops_ == 0) fail("'" + tag + "' stands outside a loop");
      break;
    default:
      macro_statement(stmt, "end" + tag);
  }
  --depth_;
}

Tree parse(std::string_view source, const TemplateLimits& limits) {
  return Parser(tokenize(source), limits).run();
}

Tree Parser::run() {
  tree_.body = body_until({});
  return std::move(tree_);
}

}  // namespace octet::jinja
